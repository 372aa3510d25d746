"""How a file is cut: pieces in order, with where the file stands behind each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.sources.protocol import Available, Offset, Piece

PIECE_BYTES = 16 << 20  # a tenth of a second or so of work, so that tasks end together


@dataclass(frozen=True)
class Share:
    """A piece of a file; `stop` is a position in the file's own terms (row group, batch, byte) to go on from."""

    piece: Piece
    stop: int
    rows: int | None = None
    bounds: tuple[int, int] | None = None


def available(offset: Offset, shares: Sequence[Share]) -> Available:
    """What a poll found: all pieces, with the rows and times that are known of every one of them."""
    rows = [s.rows for s in shares]
    bounds = [s.bounds for s in shares]
    return Available(
        offset,
        tuple(s.piece for s in shares),
        sum(r for r in rows if r is not None) if None not in rows else None,
        (min(b[0] for b in bounds if b), max(b[1] for b in bounds if b)) if bounds and None not in bounds else None,
    )
