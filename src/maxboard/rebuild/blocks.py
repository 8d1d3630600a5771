"""The members of a load as numbered chunks, made by blocks of them, from any chunk on.

What is loaded is a list of segments, each a stream that can be begun anew: bests, then held runs. A chunk keeps its
number for ever. Blocks that were read and are not known to be on the primary are kept, so a stream is seldom begun
anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from maxboard.rebuild.rows import Rows, pieces

BLOCK = 100  # chunks whose texts are made at once


@dataclass
class Segment:
    """A stream of members for one of the build's keys."""

    stream: Callable[[], Iterator[Rows]]
    held: bool
    chunks: int | None = None  # known once the stream was read to its end


@dataclass(frozen=True)
class Block:
    """Chunks ``first`` to before ``end``, whose texts are made at once."""

    first: int
    end: int
    held: bool
    rows: Rows


class Blocks:
    """The blocks of some segments, in chunks of ``chunk`` members."""

    def __init__(self, segments: list[Segment], chunk: int) -> None:
        self._segments, self._chunk = segments, chunk
        self._stream: Iterator[Block] = iter(())
        self._kept: deque[Block] = deque()  # read from the stream, and not known to be there
        self._at_hand: int | None = None  # the first chunk that can be had without a new stream; None: none was begun

    def forget(self) -> None:
        """Begin a new stream the next time: one that failed has ended, and what is left of it is not all there is."""
        self._at_hand = None

    def since(self, first: int, loaded: Callable[[], int]) -> Iterator[Block]:
        """Blocks from the one with chunk ``first`` on: those that are kept, then those that were not read yet.

        ``loaded`` says how many chunks the primary has by then: their blocks are kept no more.
        """
        if self._at_hand is None or first < self._at_hand:
            self._stream, self._at_hand = self._read(first), first
            self._kept.clear()
        yield from [block for block in self._kept if block.end > first]
        for block in self._stream:
            self._kept.append(block)
            while self._kept and self._kept[0].end <= loaded():
                self._at_hand = self._kept.popleft().end
            if block.end > first:
                yield block

    def _read(self, first: int) -> Iterator[Block]:
        """All blocks of the segments, but of those that end before chunk ``first``."""
        number = 0
        for segment in self._segments:
            if segment.chunks is not None and number + segment.chunks <= first:
                number += segment.chunks
                continue
            begin = number
            for rows in pieces(segment.stream(), self._chunk * BLOCK):
                end = number + -(-len(rows) // self._chunk)
                yield Block(number, end, segment.held, rows)
                number = end
            segment.chunks = number - begin
