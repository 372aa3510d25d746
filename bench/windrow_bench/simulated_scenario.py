"""What a simulated engine is asked to do: queries and archives that come and go, tables that change, restarts, other
numbers of partitions; from a seed.

A scenario is a list of steps. A step brings the rows of one stream that one tick takes, or changes one thing; it is
repeated until it is done, through any number of crashes. So what has been answered after a step does not depend on when
the engine failed in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

SLACK, RETAIN = 3, 12
QUERIES = (
    "SELECT k, v FROM s [RANGE 5] WHERE v > {c}",
    "SELECT k, v FROM s [RANGE 5] WHERE v > {c} AND k <> {k}",
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 8 SLIDE 4] WHERE v > {c}",
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 6 SLIDE 2] WHERE k = {k}",
    "SELECT k, MAX(v) AS top, COUNT(DISTINCT v) AS n FROM s [RANGE 7] GROUP BY k",
    "SELECT s.k, s.v, u.w FROM s [RANGE 6], u [RANGE 6] WHERE s.k = u.k AND u.w > {c}",
    "SELECT s.k, n.name, COUNT(*) AS n FROM s [RANGE 8 SLIDE 4], names n WHERE n.k = s.k GROUP BY s.k, n.name",
    "SELECT k, v FROM s [RANGE 6] WHERE NOT EXISTS (SELECT * FROM u [RANGE 6] WHERE u.k = s.k)",
    "SELECT k, v FROM s [PARTITION BY k ROWS 2]",
    "SELECT ISTREAM(k, COUNT(*) AS n) FROM s [RANGE 6 SLIDE 3] GROUP BY k",
    "SELECT DISTINCT k FROM s [RANGE 4]",
    "SELECT k, COUNT(*) AS n FROM SESSION(s PARTITION BY k, ts, 3) GROUP BY k",
    "SELECT k, v FROM s [RANGE 9] ORDER BY v DESC, k LIMIT 3",
)
ARCHIVES = (
    "SELECT k, v, ts FROM s [RANGE 9] WHERE v > {c}",
    "SELECT s.k, s.v, u.w FROM s [RANGE 6], u [RANGE 6] WHERE s.k = u.k",
)
KEEP = 1000
"""As long as the answers of some queries are kept: longer than any scenario."""

STREAMS = {
    "s": pa.schema({"k": pa.int64(), "v": pa.int64(), "ts": pa.int64()}),
    "u": pa.schema({"k": pa.int64(), "w": pa.int64(), "ts": pa.int64()}),
}
NAMES = tuple(pa.table({"k": list(range(4)), "name": [f"{n}{i}" for i in range(4)]}) for n in "ab")
DECLARED = (
    f"CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN {SLACK} RETAIN {RETAIN};"
    f"CREATE STREAM u (k BIGINT, w BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN {SLACK};"
    "CREATE TABLE names (k BIGINT, name VARCHAR);"
)


@dataclass(frozen=True)
class Step:
    """Something to do: bring `rows` of a stream, create or drop a query, create an archive, change the table, stop and
    start, on another number of `partitions` or the same; `keep`: the answers of the query last."""

    kind: Literal["rows", "create", "drop", "archive", "table", "restart", "resume"]
    name: str = ""
    text: str = ""
    rows: tuple[tuple[int, int, int], ...] = ()
    keep: bool = False
    partitions: int | None = None

    def table(self) -> pa.Table:
        """The rows of a stream."""
        schema = STREAMS[self.name]
        columns = list(zip(*self.rows, strict=True)) or [(), (), ()]
        return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)

    def __str__(self) -> str:
        rows = f"{len(self.rows)} rows of " if self.kind == "rows" else f"{self.kind} "
        kept = " KEEP" if self.keep else ""
        where = f"on {self.partitions} partitions" if self.partitions else ""
        return f"{rows}{self.name} {self.text}{kept}{where}".strip()


@dataclass(frozen=True)
class Scenario:
    """Steps; `in_process`: one task after the other as the local runtime runs them, or tasks that travel."""

    steps: tuple[Step, ...]
    in_process: bool
    partitions: int

    @property
    def script(self) -> str:
        """The queries that are there from the first row to the end."""
        first = next((i for i, s in enumerate(self.steps) if s.kind == "rows"), len(self.steps))
        dropped = {s.name for s in self.steps if s.kind == "drop"}
        made = [s for s in self.steps[:first] if s.kind == "create" and s.name not in dropped]
        return DECLARED + "".join(f"CREATE QUERY {s.name} AS {s.text};" for s in made)

    @property
    def plain(self) -> bool:
        """Whether the table stays as it is, so that a replay has the same answers."""
        return all(s.kind != "table" for s in self.steps)


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = random.Random(seed)
    queries = iter(range(99))
    created: list[str] = []

    def create() -> Step:
        name = f"q{next(queries)}"
        created.append(name)
        words = {"c": chance.randint(0, 6), "k": chance.randrange(4)}
        return Step("create", name, chance.choice(QUERIES).format(**words), keep=chance.random() < 0.3)

    steps = [create() for _ in range(chance.randint(1, 3))]
    now = dict.fromkeys(STREAMS, 0)
    for _ in range(chance.randint(2, 4)):
        pick = chance.random()
        if pick < 0.15:
            steps.append(create())
        elif pick < 0.3 and len(created) > 1:
            steps.append(Step("drop", created.pop(chance.randrange(len(created)))))
        elif pick < 0.35:
            steps.append(Step("table", "names"))
        elif pick < 0.4 and not any(s.kind == "archive" for s in steps):
            steps.append(Step("archive", "a0", chance.choice(ARCHIVES).format(c=chance.randint(0, 6))))
        elif pick < 0.5:
            steps.append(Step(chance.choice(("restart", "resume"))))
        elif pick < 0.62:
            steps.append(Step("restart", partitions=chance.choice((1, 2, 3))))
        else:
            for stream in chance.sample(sorted(STREAMS), 2):
                steps.append(_rows(stream, now, chance))
    steps += [_rows(stream, now, chance) for stream in STREAMS]
    return Scenario(tuple(steps), chance.random() < 0.4, chance.choice((1, 2)))


def _rows(stream: str, now: dict[str, int], chance: random.Random) -> Step:
    """Rows around the stream's present, which goes on; a few are late."""
    begin = now[stream]
    now[stream] = end = begin + chance.randint(1, 6)
    times = [chance.randint(max(0, begin - 2 * SLACK if chance.random() < 0.1 else begin), end) for _ in range(5)]
    return Step("rows", stream, rows=tuple((chance.randrange(4), chance.randint(0, 9), t) for t in times))
