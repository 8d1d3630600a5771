"""Where a stack keeps what, and where the machine keeps what all stacks share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from string import Template

from maxboard.errors import WrongUse

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Places:
    """The folder of one stack; ``root`` is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "stack.json"

    @property
    def config(self) -> Path:
        return self.root / "maxboard.toml"

    @property
    def lock(self) -> Path:
        return self.root / "run" / "lock"

    @property
    def all_data(self) -> Path:
        return self.root / "data"

    def data(self, server: str) -> Path:
        return self.all_data / server

    def log(self, server: str) -> Path:
        return self.root / "logs" / f"{server}.log"

    def conf(self, server: str) -> Path:
        return self.root / "run" / f"{server}.conf"

    def make(self) -> None:
        """Create the folders; raises ``WrongUse`` when the place cannot be used."""
        if set(str(self.root)) & set(",\n\r"):  # Kafka takes a comma for the end of a path, and cannot quote it
            raise WrongUse(
                f"{str(self.root)!r}: a stack's path cannot have a comma or a line break; choose another --dir"
            )
        try:
            for folder in ("run", "logs", "data"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            ignore = self.root / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise WrongUse(f"cannot keep a stack in {self.root}: {error.strerror}; choose another --dir") from error


def cache() -> Path:
    """The user's cache folder of this product, created when missing."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "maxboard"  # noqa: PTH117 - "" is relative
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"cannot use the cache {folder}: {error.strerror}; set XDG_CACHE_HOME") from error
    return folder


def render(template: str, **values: object) -> str:
    """A file of this package with its ``$names`` filled in."""
    return Template((HERE / template).read_text()).substitute(values)


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
