"""Folders of checkpoints: a local path or any fsspec URL. What is half written has no manifest and is not there."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import fsspec  # type: ignore[import-untyped]

from maxboard.errors import MaxboardError, Refused, WrongUse

MANIFEST = "manifest.json"


class Store:
    """A place for checkpoints. ``url``: ``backups``, ``s3://bucket/boards``, ``memory://x``. Raises ``WrongUse``."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except OSError as error:  # some connect at once
            raise Refused(f"cannot reach {url}: {_words(error)}") from None
        except Exception as error:  # what an implementation makes of words that it does not take
            raise WrongUse(
                f"{url!r} is no place for checkpoints ({_words(error)}): a folder, or a URL such as s3://bucket/boards"
            ) from None
        self._local = "file" in self._protocols()

    def _protocols(self) -> tuple[str, ...]:
        protocol: str | tuple[str, ...] = self._fs.protocol
        return (protocol,) if isinstance(protocol, str) else protocol

    def path(self, *parts: str) -> str:
        return posixpath.join(self._root, *parts)

    def new_folder(self, board: str, at: int) -> str:
        """A folder name that no other checkpoint has; ``at`` in epoch ms. Names sort by time."""
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return posixpath.join(safe(board), f"{moment:%Y%m%dT%H%M%S}.{at % 1000:03d}Z-{secrets.token_hex(3)}")

    def try_to_write(self, board: str) -> None:
        """Raises ``Refused`` when nothing can be written for a board. Leaves no file."""
        name = f".{secrets.token_hex(6)}"
        self.write(safe(board), name, b"")
        with suppress(Exception):  # it may be allowed to add only; nobody takes this for a checkpoint
            self._fs.rm_file(self.path(safe(board), name))

    def is_there(self) -> bool:
        """Whether there is anything at the place."""
        with self._saying(f"cannot read {self.url}"):
            return bool(self._fs.exists(self._root))

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a file. Raises ``Refused`` saying why it cannot."""
        with self._saying(f"cannot write {name} to {self.url}"):
            self._fs.makedirs(self.path(folder), exist_ok=True)
            with self._fs.open(self.path(folder, name), "wb") as file:
                file.write(data)

    def publish(self, folder: str, data: bytes) -> None:
        """Write the manifest: from now on the folder is a checkpoint."""
        if not self._local:  # one object: it is there as a whole or not at all
            self.write(folder, MANIFEST, data)
            return
        self.write(folder, f".{MANIFEST}", data)
        with self._saying(f"cannot write to {self.url}"):
            self._fs.mv(self.path(folder, f".{MANIFEST}"), self.path(folder, MANIFEST))

    def read(self, folder: str, name: str) -> bytes:
        """A file's bytes. Raises ``Refused``."""
        with self._saying(f"cannot read {posixpath.join(folder, name)} in {self.url}"):
            data: bytes = self._fs.cat_file(self.path(folder, name))
            return data

    def boards(self) -> list[str]:
        """References of the boards that may have checkpoints here."""
        return [name.replace("~", ":") for name in self._children("")]

    def folders(self, board: str) -> list[str]:
        """Folders that may be checkpoints of a board, oldest first."""
        return [posixpath.join(safe(board), child) for child in self._children(safe(board))]

    def complete(self, folder: str) -> bool:
        """Whether a folder has its manifest."""
        with self._saying(f"cannot read {self.url}"):
            return bool(self._fs.exists(self.path(folder, MANIFEST)))

    def remove(self, folder: str) -> None:
        """Take a checkpoint away, its manifest first: what is left of it is none any more."""
        with self._saying(f"cannot remove {folder} in {self.url}"):
            if self._fs.exists(self.path(folder, MANIFEST)):
                self._fs.rm_file(self.path(folder, MANIFEST))
            self._fs.rm(self.path(folder), recursive=True)

    def _children(self, folder: str) -> list[str]:
        with self._saying(f"cannot read {self.url}"):
            try:
                found: list[dict[str, Any]] = self._fs.ls(self.path(folder) if folder else self._root, detail=True)
            except FileNotFoundError:
                return []
            return sorted(posixpath.basename(e["name"].rstrip("/")) for e in found if e["type"] == "directory")

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise Refused(f"{what}: it is not there") from None
        except MaxboardError:
            raise
        except Exception as error:  # every implementation has errors of its own: wrong credentials, not implemented
            raise Refused(f"{what}: {_words(error)}") from None


def _words(error: Exception) -> str:
    """An error in one line."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(words).split())


def safe(board: str) -> str:
    """A board reference as a folder's name: it has no "~" of its own."""
    return board.replace(":", "~")
