"""Where members in columns are: on the driver while they run, and in a home while they do not.

    home     block  family  epoch  queries   rows of values      synopses        left
             9f..   +1      0      q         s=1 lim=2.5  ...    0 1 2 ...       those that have gone since

What is kept of a block is written once, and after that who leaves. After a restart instances find their places by
their values.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.runtime.family_programs import clock_name
from windrow.sharing.member_columns import MemberColumns

NOBODY: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class ColumnPlace:
    """Members in columns, their family, and who of them has left."""

    members: MemberColumns
    family: str
    left: Int64s

    @property
    def clock(self) -> str:
        """The name of their clock."""
        return clock_name(self.family, self.members.epoch)

    @property
    def alive(self) -> Bools:
        """Who has not left."""
        found = np.ones(len(self.members), np.bool_)
        found[self.left] = False
        return found

    def without(self, places: Int64s) -> ColumnPlace:
        """Without some more of them."""
        return ColumnPlace(self.members, self.family, np.union1d(self.left, places))

    def plain(self) -> dict[str, Any]:
        """What a restart must know."""
        m = self.members
        return {
            "block": m.uid, "family": self.family, "epoch": m.epoch, "queries": m.names.group, "size": len(m),
            "rows": packed_rows(m.names.rows), "synopses": _packed(m.synopses), "left": self.left.tolist(),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class LeftColumns:
    """The places that members in columns had when their home was left."""

    queries: str
    family: str
    epoch: int
    rows: pa.Table
    synopses: Int64s

    @property
    def clock(self) -> str:
        """The name of their clock."""
        return clock_name(self.family, self.epoch)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> LeftColumns:
        """What `ColumnPlace.plain` wrote, of those who had not left."""
        alive = np.ones(plain["size"], np.bool_)
        alive[plain["left"]] = False
        synopses = np.frombuffer(base64.b64decode(plain["synopses"]), np.int64)
        rows = read_rows(plain["rows"]).filter(pa.array(alive))
        return LeftColumns(plain["queries"], plain["family"], plain["epoch"], rows, synopses[alive])

    def take(self, places: Int64s) -> LeftColumns:
        """Some of them."""
        rows = self.rows.take(pa.array(places))
        return LeftColumns(self.queries, self.family, self.epoch, rows, self.synopses[places])


def packed_rows(table: pa.Table) -> str:
    """A table as text."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def read_rows(packed: str) -> pa.Table:
    """The table that `packed_rows` wrote."""
    return pa.ipc.open_stream(base64.b64decode(packed)).read_all()


def _packed(values: Int64s) -> str:
    return base64.b64encode(values.astype(np.int64).tobytes()).decode()
