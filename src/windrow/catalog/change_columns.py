"""Where a row that tells of a change says what has happened: CHANGES BY op [BEFORE image AFTER image].

A change is flat, its columns those of the table and the operation beside them; or it is an envelope, as Debezium writes
it, with the row before the change and the row after it as structs. Each is named by a path from the top of the row, so
an envelope within a `payload` needs no other word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.scalar_engine import quote

Path = tuple[str, ...]


@dataclass(frozen=True)
class ChangeColumns:
    """The paths of the operation and, in an envelope, of the row before and after."""

    op: Path
    before: Path | None = None
    after: Path | None = None

    def read(self, columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The columns of a change to a table of these columns.

        >>> ChangeColumns(("op",)).read({"id": pa.int64()})
        {'id': DataType(int64), 'op': DataType(string)}
        >>> list(ChangeColumns(("p", "op"), ("p", "b"), ("p", "a")).read({"id": pa.int64()}))
        ['p']
        """
        image = pa.struct(list(columns.items()))
        found: dict[str, Any] = dict(columns) if self.after is None else {}
        for path, type_ in ((self.op, pa.string()), (self.before, image), (self.after, image)):
            inside = found
            for name in (path or ())[:-1]:
                inside = inside.setdefault(name, {})
            if path:
                inside[_known(path[-1], inside)] = type_
        return {name: _typed(part) for name, part in found.items()}

    def plain(self) -> list[list[str] | None]:
        """As JSON has it."""
        return [None if path is None else list(path) for path in (self.op, self.before, self.after)]

    @classmethod
    def of_plain(cls, plain: list[list[str] | None]) -> ChangeColumns:
        """What `plain` made."""
        op, before, after = (None if path is None else tuple(path) for path in plain)
        assert op is not None
        return cls(op, before, after)

    def text(self) -> str:
        """As a script writes it.

        >>> ChangeColumns(("p", "op"), ("p", "b"), ("p", "a")).text()
        'CHANGES BY p.op BEFORE p.b AFTER p.a'
        """
        words = [("BY", self.op), ("BEFORE", self.before), ("AFTER", self.after)]
        return " ".join(["CHANGES", *(f"{word} {'.'.join(map(_written, path))}" for word, path in words if path)])


def _written(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quote(name)


def _known(name: str, columns: Mapping[str, Any]) -> str:
    """The name as it is declared, if it is: the operation may be a column of the table, too."""
    return next((c for c in columns if c.lower() == name.lower()), name)


def _typed(part: Any) -> pa.DataType:
    return pa.struct([(n, _typed(p)) for n, p in part.items()]) if isinstance(part, dict) else part
