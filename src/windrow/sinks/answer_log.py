"""Answers that last: the change log of a query as Parquet files by time, for as long as KEEP says.

    answers/<query>/date=2026-03-01/ticks-0000000001-0000000064.parquet      _ts, _op, the select list
                   /date=2026-03-02/ticks-0000000065-0000000065.parquet
                   /_relation/0001772409600000000.parquet                    the relation when that day began

A tick writes a file of its own in each partition that it has rows for (a day of UTC; for a clock that counts plain
ticks, a stretch of them). Files of neighbouring ticks are merged, a full partition into one. A file's name says which
ticks it holds, and a file whose ticks another file of the partition holds too is not read: so writing a tick again and
a crash while merging change nothing. Any reader of Parquet can read the directory; what a merge has just replaced is
deleted at once, but not at the same instant.

For relations, each partition begins with the rows that were there: `as_of` an instant reads those and the changes of
one partition. A partition is dropped when all of it is older than KEEP allows.

Cost: a row is written log(FANOUT, ticks of a partition) times, behind the ticks, by one thread for each log.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from windrow.errors import StateError
from windrow.operators.aggregates.vectors import DAY_US, distinct_values
from windrow.operators.elements import one
from windrow.operators.keys import factorize
from windrow.store.background import spawn
from windrow.store.place import Place, is_temporary, segment

LOG = logging.getLogger("windrow.engine")

FANOUT = 16
"""Files of a partition that are merged into one."""

_FILE = re.compile(r"ticks-(\d{10,})-(\d{10,})\.parquet")
_RELATION = "_relation"
_NAME = b"windrow.name"  # a file says whose it is: one that lies in another's place is not read
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, order=True)
class LogFile:
    """A file of a partition: the ticks it holds."""

    first: int
    last: int
    name: str

    def within(self, other: LogFile) -> bool:
        """Whether another file holds all of its ticks."""
        return self != other and other.first <= self.first and self.last <= other.last


class AnswerLog:
    """The log of one query. `schema`: of its answers; `keep`: in units of its clock."""

    def __init__(
        self, place: Place, query: str, schema: pa.Schema, keep: int, *, relation: bool, sync: bool = True
    ) -> None:
        self.place, self.schema, self.keep, self.relation, self._sync = place, schema, keep, relation, sync
        self.folder = f"answers/{segment(query)}"
        self.times = pa.types.is_timestamp(schema.field("_ts").type)
        self.length = DAY_US if self.times else max(1, keep // 8)
        self._lock = threading.Lock()  # nothing is deleted while someone reads
        self._newest: int | None = None  # the newest partition, when files have come since the last merge
        self._worker: threading.Thread | None = None

    # writing

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Take the answer of a tick; taking it again changes nothing."""
        if not table.num_rows:
            return
        numbers = self._instants(table) // self.length
        for number in distinct_values(numbers).tolist():
            part = table.filter(pa.array(numbers == number))
            self._put(f"{self._partition(number)}/{_named(tick, tick)}", part)
        self._tidy(int(numbers.max()))

    def close(self) -> None:
        """Wait for what is being merged."""
        self.settle()

    def drop(self) -> None:
        """Delete the log."""
        self.close()
        for name in self.place.names(self.folder, recursive=True):
            self.place.delete(name)

    def settle(self) -> None:
        """Wait until nothing is left to merge."""
        if self._worker is not None:
            self._worker.join()
            self._worker = None
        self._merge_new()  # what came just as the last merge ended

    def _put(self, name: str, table: pa.Table) -> None:
        sink, name = pa.BufferOutputStream(), f"{self.folder}/{name}"
        named = table.select(self.schema.names).cast(self.schema).replace_schema_metadata({_NAME: name})
        parquet.write_table(named, sink, write_page_checksum=True)
        self.place.write(name, sink.getvalue(), sync=self._sync)

    # merging

    def _tidy(self, newest: int) -> None:
        self._newest = newest
        if self._worker is None or not self._worker.is_alive():
            self._worker = spawn(self._merge_new, f"windrow {self.folder}")

    def _merge_new(self) -> None:
        while (newest := self._newest) is not None:
            self._newest = None
            try:
                self._merge(newest)
            except Exception:  # answers are all there; merging is tried again with the next tick
                LOG.exception("merging %s failed", self.folder)

    def _merge(self, newest: int) -> None:
        for number in self._numbers():
            self._merge_partition(number, whole=number < newest)
        if self.relation:
            for number in self._numbers():
                if number < newest:
                    self._begin(number + 1)
        self._expire(newest)

    def _merge_partition(self, number: int, whole: bool) -> None:
        """Merge files of a partition: all of them, or while there are enough alike. Then delete what is replaced."""
        while True:
            files = self._files(number)
            live = _live(files)
            chosen = live if whole else _alike(live)
            if len(chosen) < 2:
                break
            table = pa.concat_tables([self._load(f.name) for f in chosen])
            self._put(f"{self._partition(number)}/{_named(chosen[0].first, chosen[-1].last)}", table)
        replaced = set(files) - set(live)
        if replaced and self._sync:  # by files that an earlier process may have written and not synced
            self.place.sync(f"{self.folder}/{self._partition(number)}")
        with self._lock:
            for file in replaced:
                self.place.delete(file.name)

    def _begin(self, number: int) -> None:
        """Write the relation as it was when a partition began, if nobody has."""
        name = f"{_RELATION}/{number * self.length:019d}.parquet"
        if not self.place.exists(f"{self.folder}/{name}"):
            self._put(name, self._net(number * self.length - 1))

    def _expire(self, newest: int) -> None:
        for number in self._numbers():
            if (number + 1) * self.length <= newest * self.length - self.keep:
                with self._lock:
                    for file in self._files(number):
                        self.place.delete(file.name)
        kept = self._numbers()
        for at, name in self._relations():
            if kept and at < kept[0] * self.length:
                self.place.delete(name)

    # reading

    def results(self, since: int | None = None, until: int | None = None) -> pa.Table:
        """The answers with since <= _ts < until."""
        tables = [self.schema.empty_table()]
        with self._lock:
            for number in self._numbers():
                begin, end = number * self.length, (number + 1) * self.length
                if (since is None or end > since) and (until is None or begin < until):
                    tables += [self._load(f.name) for f in _live(self._files(number))]
        found = pa.concat_tables(tables)
        instants = self._instants(found)
        mask = np.ones(len(instants), np.bool_)
        if since is not None:
            mask &= instants >= since
        if until is not None:
            mask &= instants < until
        found = found.filter(pa.array(mask))
        return found.take(pa.array(np.argsort(instants[mask], kind="stable")))

    def as_of(self, instant: int) -> pa.Table:
        """The relation at an instant, or the last answer up to then of a query that has none."""
        begun = self._begun()
        if begun is None or instant < begun:
            raise StateError(
                "the answer is not kept for so long",
                detail=f"it is kept from {begun} on" if begun is not None else "nothing is kept yet",
                hint="ask for a later instant, or KEEP the query longer",
            )
        if self.relation:
            return self._net(instant)
        found = self.results(until=instant + 1)
        last = self._instants(found)
        return found.filter(pa.array(last == last.max())).drop_columns(["_ts"]) if len(last) else found

    def _begun(self) -> int | None:
        """The first instant that can be asked for."""
        numbers = self._numbers()
        if not numbers:
            return None
        bases = [at for at, _ in self._relations()]
        if not self.relation or (bases and bases[0] <= numbers[0] * self.length):
            return numbers[0] * self.length
        first = self.results(until=(numbers[0] + 1) * self.length)  # the log begins here
        return int(self._instants(first).min())

    def _net(self, instant: int) -> pa.Table:
        """The rows that are there at an instant: those of the last relation before it, and the changes since."""
        bases = [(at, name) for at, name in self._relations() if at - 1 <= instant]
        since = bases[-1][0] if bases else None
        parts = [self._load(bases[-1][1])] if bases else []
        parts.append(self.results(since, instant + 1))
        return present(pa.concat_tables(parts))

    # files

    def _numbers(self) -> list[int]:
        """The partitions that have files."""
        found = {self._number(name.rsplit("/", 2)[1]) for name in self._names() if _FILE.search(name)}
        return sorted(n for n in found if n is not None)

    def _names(self) -> list[str]:
        return [n for n in self.place.names(self.folder, recursive=True) if not is_temporary(n)]

    def _partition(self, number: int) -> str:
        if not self.times:
            return f"stretch={number}"
        return f"date={(_EPOCH + timedelta(days=number)).date().isoformat()}"

    def _number(self, folder: str) -> int | None:
        kind, _, text = folder.partition("=")
        if kind == "stretch":
            return int(text)
        if kind == "date":
            return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH).days
        return None

    def _files(self, number: int) -> list[LogFile]:
        names = self.place.names(f"{self.folder}/{self._partition(number)}")
        found = ((name, _FILE.search(name)) for name in names if not is_temporary(name))
        return sorted(LogFile(int(m[1]), int(m[2]), name) for name, m in found if m)

    def _relations(self) -> list[tuple[int, str]]:
        names = self.place.names(f"{self.folder}/{_RELATION}")
        return sorted((int(n.rsplit("/", 1)[1].removesuffix(".parquet")), n) for n in names if not is_temporary(n))

    def _load(self, name: str) -> pa.Table:
        try:
            data = pa.BufferReader(self.place.read(name))
            table = parquet.read_table(data, partitioning=None, page_checksum_verification=True)
            if (written := (table.schema.metadata or {}).get(_NAME, name.encode())) != name.encode():
                raise ValueError(f"it was written as {written.decode()}")
            table = table.cast(self.schema)
            if any(table.column(c).null_count for c in ("_ts", "_op") if c in table.column_names):
                raise ValueError("an answer without its instant")
            return table
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StateError(
                f"corrupt answers {self.place.path(name)}",
                detail=str(error).splitlines()[0],
                hint="restore the file from a backup, or delete it: the rest of the answers can be read",
            ) from error

    def _instants(self, table: pa.Table) -> np.ndarray:
        column = one(table.column("_ts"))
        return column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() if self.times else column.to_numpy()


def present(changes: pa.Table) -> pa.Table:
    """What remains of changes when every row that left has taken one that came with it.

    >>> present(pa.table({"_ts": [1, 1, 2], "_op": [1, 1, -1], "a": [7, 8, 7]})).to_pylist()
    [{'_ts': 1, '_op': 1, 'a': 8}]
    """
    columns = [one(changes.column(n)) for n in changes.column_names if n not in ("_ts", "_op")]
    codes, first = factorize(columns, changes.num_rows)
    net = np.zeros(len(first), np.int64)
    np.add.at(net, codes, changes.column("_op").to_numpy().astype(np.int64))
    shown = changes.take(pa.array(np.repeat(first, np.maximum(net, 0))))
    at = changes.column_names.index("_op")
    return shown.set_column(at, "_op", pa.array(np.ones(shown.num_rows), changes.schema.field("_op").type))


def _named(first: int, last: int) -> str:
    return f"ticks-{first:010d}-{last:010d}.parquet"


def _live(files: Sequence[LogFile]) -> list[LogFile]:
    """The files that are read: those whose ticks no other file holds."""
    return [f for f in files if not any(f.within(other) for other in files)]


def _alike(files: Sequence[LogFile]) -> list[LogFile]:
    """The oldest files that follow each other and hold about equally many ticks, if there are `FANOUT` of them."""
    found: list[LogFile] = []
    for file in files:
        if found and _level(file) != _level(found[-1]):
            found = []
        found.append(file)
        if len(found) == FANOUT:
            return found
    return []


def _level(file: LogFile) -> int:
    return (file.last - file.first + 1).bit_length() // (FANOUT.bit_length() - 1)
