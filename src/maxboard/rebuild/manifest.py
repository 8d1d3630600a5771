"""The manifest of a checkpoint: what it is of, and its files with their sizes and checksums. It is written last."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from maxboard.errors import Refused

FORMAT = 1


@dataclass(frozen=True)
class File:
    """One file of a checkpoint."""

    name: str
    kind: str  # best or held
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is of. ``positions``: by partition field; ``moderation``: the position it was judged at.

    ``topic_id`` and ``moderation_id`` are Kafka's ids of the topics that the positions are of.
    """

    board: str
    definition: str
    epoch: int
    topic_id: str
    moderation_id: str
    positions: dict[str, int]
    moderation: int
    members: int
    held: int
    numeric: bool
    created: str
    files: tuple[File, ...]
    format: int = FORMAT
    checksum: str = field(default="", compare=False)

    @property
    def topics(self) -> tuple[str, str]:
        """Ids of the topics of runs and moderation."""
        return self.topic_id, self.moderation_id

    def encode(self) -> bytes:
        """The file's text; its ``checksum`` is over everything else in it."""
        document = asdict(self)
        document["checksum"] = _checksum(document)
        return json.dumps(document, indent=1).encode()


def _checksum(document: dict[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def decode(data: bytes, where: str) -> Manifest:
    """The manifest of a file. Raises ``Refused`` naming what is wrong."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise Refused(f"{where} has format {document['format']}, this version reads {FORMAT}: use a newer one")
        if document["checksum"] != _checksum(document):
            raise Refused(f"{where} is damaged: its checksum is another: use another checkpoint")
        files = tuple(File(**file) for file in document.pop("files"))
        return Manifest(**document, files=files)
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{where} is no manifest of a checkpoint: use another checkpoint") from None
