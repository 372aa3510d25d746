"""How a file is cut: pieces in order, with where the file stands behind each of them."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.sources.protocol import Piece

PIECE_BYTES = 16 << 20  # a tenth of a second or so of work, so that tasks end together


@dataclass(frozen=True)
class Share:
    """A piece of a file; `stop` is a position in the file's own terms (row group, batch, byte) to go on from."""

    piece: Piece
    stop: int
    rows: int | None = None
    bounds: tuple[int, int] | None = None
