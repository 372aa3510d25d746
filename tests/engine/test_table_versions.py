"""Tables that change while queries run, against the definition: rows meet the version of their own time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.operators.elements import BEGINNING
from windrow.testing import assert_same, oracle

STREAMS = "CREATE STREAM {0} (k BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2;"
DECLARED = STREAMS.format("s") + STREAMS.format("r")
TABLE = "CREATE TABLE t (id BIGINT, name VARCHAR){} KEY (id) CHANGES BY op;"

QUERIES = {
    "inner_": "SELECT s.ts AS at, k, name FROM s [RANGE 6] JOIN {t} ON k = id{s}",
    "left_": "SELECT s.ts AS at, k, name FROM s [RANGE 6] LEFT JOIN {t} ON k = id{s}",
    "none_": "SELECT s.ts AS at, k FROM s [RANGE 6] WHERE NOT EXISTS (SELECT * FROM {t} WHERE k = id{s})",
    "some_": "SELECT k, COUNT(*) AS n FROM s [RANGE 9] WHERE EXISTS (SELECT * FROM {t} WHERE k = id{s}) GROUP BY k",
    "short": "SELECT name, COUNT(*) AS n FROM s [RANGE 8 SLIDE 4] JOIN {t} ON k = id{s} GROUP BY name",
    "long_": "SELECT name, COUNT(*) AS n FROM s [RANGE 16 SLIDE 4] JOIN {t} ON k = id{s} GROUP BY name",
    "every": "SELECT k, name FROM s [RANGE 6 SLIDE 3] LEFT JOIN {t} ON k = id{s}",
    "hours": "SELECT name, COUNT(*) AS n FROM TUMBLE(s, ts, 5) JOIN {t} ON k = id{s} GROUP BY name",
    "both_": "SELECT s.ts AS a, r.ts AS b, name FROM s [RANGE 6], r [RANGE 5], {t} WHERE s.k = r.k AND s.k = id{s}{r}",
    "twice": "SELECT s.k, COUNT(*) AS n, MAX(name) AS m FROM s [RANGE 8 SLIDE 4], r [RANGE 5], {t} "
    "WHERE s.k = r.k AND s.k = id{s}{r} GROUP BY s.k",
    "last_": "SELECT s.ts AS at, k, name FROM s [ROWS 3] JOIN {t} ON k = id{s}",
    "owned": "SELECT k, name FROM s [PARTITION BY k ROWS 2] JOIN {t} ON k = id{s}",
    "outer": "SELECT k, name FROM s [ROWS 3] LEFT JOIN {t} ON k = id{s}",
    "alone": "SELECT k FROM s [ROWS 3] WHERE NOT EXISTS (SELECT * FROM {t} WHERE k = id{s})",
    "once_": "SELECT DISTINCT k, name FROM s [RANGE 6] JOIN {t} ON k = id{s}",
    "above": "SELECT k FROM s [RANGE 6] WHERE EXISTS (SELECT * FROM {t} WHERE k > id AND name > 'x'{s})",
    "total": "SELECT name, COUNT(*) AS n FROM s [ROWS 4] JOIN {t} ON k = id{s} GROUP BY name",
    "pairs": "SELECT s.k, r.ts AS b, name FROM s [ROWS 3], r [ROWS 2], {t} WHERE s.k = r.k AND s.k = id{s}{r}",
    "apart": "SELECT s.k, r.k AS b, name FROM s [ROWS 2], r [RANGE 3], {t} WHERE s.k < r.k AND s.k = id{s}{r}",
}  # fmt: skip
ALIVE = " AND (since IS NULL OR {0}.ts >= since) AND (til IS NULL OR {0}.ts < til)"


class Life:
    """An engine that is pushed rows and changes at random, and what the definition makes of them."""

    def __init__(self, seed: int, retroactive: bool, queries: dict[str, str], **options: Any) -> None:
        self.choose = random.Random(seed)
        self.options = {"runtime": "local", "sharing": self.choose.choice(["auto", "off"]), **options}
        self.retroactive, self.queries = retroactive, queries
        self.engine = windrow.Engine(**self.options)
        script = DECLARED + TABLE.format(" RETROACTIVE" if retroactive else "")
        script += "".join(f"CREATE QUERY {n} AS {q.format(t='t', s='', r='')};" for n, q in queries.items())
        self.engine.execute(script)
        self.engine.start()
        self.rows: dict[str, list[tuple[int, int]]] = {"s": [], "r": []}
        self.changes: list[tuple[int, str, int, str | None]] = []  # (from when, op, id, name)
        self.now = 0
        self.found: dict[str, list[pa.Table]] = {n: [] for n in queries}

    def live(self, steps: int) -> None:
        """Push rows of both streams, and changes between them; sometimes leave and come back."""
        for _ in range(steps):
            what = self.choose.choice(["s", "s", "s", "r", "r", "t", "t", "restart"])
            if what == "t":
                self._change()
            elif what == "restart" and "home" in self.options:
                self._collect()
                self.engine.stop()
                self.engine = windrow.Engine(**self.options)
                self.engine.start()
            elif what in self.rows:
                self._push(what)
            self._settle()
        self.now += 3
        for name in self.rows:
            self._push(name, (0, self.now))
        self._settle()
        if self.options["runtime"] == "local":
            self.engine.advance(self.now)
        self._collect()

    def _push(self, stream: str, *rows: tuple[int, int]) -> None:
        new = list(rows)
        for _ in range(0 if rows else self.choose.randint(1, 4)):
            self.now += self.choose.choice([0, 0, 1, 1, 2])
            late = self.choose.choice([0, 0, 1]) if self.rows[stream] else 0
            new.append((self.choose.randint(0, 3), max(self.now - late, self.engine.runtime.ticker.frontier + 1)))
        self.now = max(self.now, *(ts for _, ts in new))
        self.rows[stream] += new
        self.engine.push(stream, {"k": [k for k, _ in new], "ts": [ts for _, ts in new]})

    def _change(self) -> None:
        ticker = self.engine.runtime.ticker
        reached = max(ticker.frontier, *ticker.manifest.marks.values(), BEGINNING)
        new = [
            (self.choose.choice("cuudd"), self.choose.randint(0, 3), self.choose.choice(["x", "y", "z"]))
            for _ in range(self.choose.randint(1, 3))
        ]
        at = -1000 if reached == BEGINNING else reached + 1
        self.changes += [(at, op, key, name) for op, key, name in new]
        op, key, name = (list(c) for c in zip(*new, strict=True))
        self.engine.push("t", {"op": op, "id": key, "name": name})

    def _settle(self) -> None:
        if self.options["runtime"] != "local":
            self.engine.drain()

    def _collect(self) -> None:
        for name, parts in self.found.items():
            parts.append(self.engine[name].results())
        assert not self.engine.status()["failed"]

    def close(self) -> None:
        self.until = self.engine.runtime.ticker.frontier
        self.engine.stop()

    def defined(self, query: str) -> pa.Table:
        """The answer from the definition: a table of versions with their times, or a stream of changes."""
        data = {n: pa.table({"k": [k for k, _ in r], "ts": [t for _, t in r]}) for n, r in self.rows.items()}
        text = self.queries[query]
        if not self.retroactive:
            written = text.format(t="h", s=ALIVE.format("s"), r=ALIVE.format("r"))
            return oracle(f"{DECLARED} {written}", data, {"h": self._versions()}, until=self.until)["q1"]
        told = "(SELECT id, name FROM c [PARTITION BY id ROWS 1] WHERE op <> 'd') t"
        columns = [list(c) for c in zip(*self.changes, strict=True)] or [[]] * 4
        schema = pa.schema([("ts", pa.int64()), ("op", pa.string()), ("id", pa.int64()), ("name", pa.string())])
        data["c"] = pa.table(columns, schema=schema)
        return oracle(f"{DECLARED} {text.format(t=told, s='', r='')}", data, {}, until=self.until)["q1"]

    def _versions(self) -> pa.Table:
        there: dict[int, tuple[str | None, int]] = {}
        found: list[tuple[int, str | None, int, int | None]] = []
        for at, op, key, name in self.changes:
            if key in there:
                found.append((key, *there.pop(key), at))
            if op != "d":
                same = next((v for v in found if v[:2] == (key, name) and v[3] == at), None)
                if same is not None:  # the row has not gone
                    found.remove(same)
                there[key] = (name, at if same is None else same[2])
        found += [(key, name, at, None) for key, (name, at) in there.items()]
        names = ("id", "name", "since", "til")
        types = (pa.int64(), pa.string(), pa.int64(), pa.int64())
        columns = list(zip(*found, strict=True)) or [()] * 4
        return pa.table([pa.array(list(c), t) for c, t in zip(columns, types, strict=True)], names=list(names))


def check(life: Life, context: str) -> None:
    for name in life.queries:
        got = pa.concat_tables(life.found[name]).sort_by("_ts")
        try:
            assert_same(got, life.defined(name))
        except AssertionError as error:
            raise AssertionError(f"{context}, {name}: {life.changes} {life.rows}\n{error}") from error


@pytest.mark.parametrize("retroactive", [False, True])
@pytest.mark.parametrize("first", range(0, 12, 6))
def test_rows_meet_the_version_of_their_time(first: int, retroactive: bool, tmp_path) -> None:
    """Random rows and changes: inner, outer and anti-joins, aggregates, periodic or not, shared or not, restarted."""
    queries = QUERIES if not retroactive else {n: q for n, q in QUERIES.items() if n not in ("hours",)}
    for seed in range(first, first + 6):
        options = {"home": str(tmp_path / str(seed))} if seed % 3 == 0 else {}
        life = Life(seed, retroactive, queries, partitions=1 + seed % 2, **options)
        life.live(14)
        life.close()
        check(life, f"seed {seed}")


KEPT = {
    "padded": "SELECT id, name, k FROM t LEFT JOIN s [RANGE 6] ON k = id",
    "absent": "SELECT id, name FROM t WHERE NOT EXISTS (SELECT * FROM s [RANGE 6] WHERE k = id)",
    "beyond": "SELECT id, name FROM t WHERE NOT EXISTS (SELECT * FROM s [RANGE 6] WHERE k = id AND s.ts > id + 2)",
    "there": "SELECT id, name FROM t WHERE EXISTS (SELECT * FROM s [RANGE 6] WHERE k = id)",
}  # fmt: skip
"""Queries that keep the rows of a table, with partners in a window or without."""


def kept_rows(query: str, life: Life, now: int) -> Counter[tuple[Any, ...]]:
    """What such a query answers at an instant: rows of the window have met the table as it was at their own times."""
    versions = [tuple(v.values()) for v in life._versions().to_pylist()]

    def there(at: int) -> list[tuple[int, str]]:
        return [(key, name) for key, name, since, til in versions if since <= at and (til is None or at < til)]

    window = [(k, ts) for k, ts in life.rows["s"] if now - 6 < ts <= now]
    met = [(row, k) for k, ts in window for row in there(ts) if row[0] == k and (query != "beyond" or ts > k + 2)]
    partners = {row for row, _ in met}
    alone = [row for row in there(now) if row not in partners]
    if query == "padded":
        return Counter([(*row, k) for row, k in met] + [(*row, None) for row in alone])
    return Counter([row for row in there(now) if row in partners] if query == "there" else alone)


def check_kept(life: Life, context: str) -> None:
    begun = min(ts for _, ts in life.rows["s"])
    for query in KEPT:
        changes = pa.concat_tables(life.found[query]).to_pylist()
        for now in range(begun, life.until + 1):
            found: Counter[tuple[Any, ...]] = Counter()
            for _ts, op, *row in (tuple(c.values()) for c in changes):
                found[tuple(row)] += op if _ts <= now else 0
            want = kept_rows(query, life, now)
            wrong = {r: (found[r], want[r]) for r in found | want if found[r] != want[r]}
            assert not wrong, f"{context}, {query} at {now}: {wrong}\n{life.changes} {life.rows}"


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_rows_of_a_table_that_are_kept(first: int, tmp_path) -> None:
    """A row that is kept with or without a partner goes when the table gives it up; new ones wait for rows to come."""
    for seed in range(first, first + 6):
        options = {"home": str(tmp_path / str(seed))} if seed % 3 == 0 else {}
        life = Life(seed, False, KEPT, partitions=1 + seed % 2, **options)
        life.live(14)
        life.close()
        check_kept(life, f"seed {seed}")


@pytest.mark.spark
def test_rows_meet_the_version_of_their_time_on_spark(spark: object) -> None:
    """The same on Spark, where each push is a tick of its own."""
    queries = {n: QUERIES[n] for n in ("left_", "none_", "short", "long_", "both_")}
    life = Life(5, False, queries, runtime="spark", spark=spark)
    life.live(6)
    life.close()
    check(life, "on Spark")
