"""Folders of checkpoints: a local path or any fsspec URL. What is half written has no manifest and is not there."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import fsspec  # type: ignore[import-untyped]

from maxboard.errors import Refused, WrongUse

MANIFEST = "manifest.json"


class Store:
    """A place for checkpoints. ``url``: ``backups``, ``s3://bucket/boards``, ``memory://x``. Raises ``WrongUse``."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise WrongUse(f"{url!r} is no place for checkpoints: {error}") from None
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

    def folders(self, board: str | None = None) -> list[str]:
        """Folders that may be checkpoints, oldest first for each board."""
        boards = [safe(board)] if board is not None else self._children("")
        return [posixpath.join(name, child) for name in boards for child in self._children(name)]

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
        except OSError as error:
            raise Refused(f"{what}: {error.strerror or error}") from None


def safe(board: str) -> str:
    """A board reference as a folder's name: it has no "~" of its own."""
    return board.replace(":", "~")
