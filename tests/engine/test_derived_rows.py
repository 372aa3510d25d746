"""Rows that queries make (groups, values, the first few) meet a table that changes, against the definition.

Such a row is there from the instant at which it comes into its relation until it leaves it; it meets the table as it is
when it comes, and goes with what it has met. Of equal rows the oldest goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.test_table_versions import Life

Rows = list[tuple[Any, ...]]
Relation = Callable[[Rows, int], Rows]

GROUPS = "(SELECT k, COUNT(*) AS n FROM s [RANGE 4] GROUP BY k)"
VALUES = "(SELECT DISTINCT k FROM s [RANGE 5])"
FIRST = "(SELECT k, ts FROM s [RANGE 6] ORDER BY ts DESC, k LIMIT 2)"


def window(rows: Rows, now: int, size: int) -> Rows:
    return [row for row in rows if now - size < row[1] <= now]


def groups(rows: Rows, now: int) -> Rows:
    return list(Counter(k for k, _ in window(rows, now, 4)).items())


def values(rows: Rows, now: int, size: int = 5) -> Rows:
    return list({(k,) for k, _ in window(rows, now, size)})


def first(rows: Rows, now: int) -> Rows:
    return sorted(window(rows, now, 6), key=lambda row: (-row[1], row[0]))[:2]


def greatest(rows: Rows, now: int) -> Rows:
    found = window(rows, now, 5)
    return [(max((k for k, _ in found), default=None),)] if now >= min(ts for _, ts in rows) else []


JOINED: dict[str, tuple[str, Relation]] = {
    "groups": (f"SELECT x.k, x.n, name FROM {GROUPS} x, {{t}} WHERE x.k = id", groups),
    "values": (f"SELECT x.k, name FROM {VALUES} x, {{t}} WHERE x.k = id", values),
    "first": (f"SELECT x.k, x.ts AS b, name FROM {FIRST} x, {{t}} WHERE x.k = id", first),
    "greatest": ("SELECT x.m, name FROM (SELECT MAX(k) AS m FROM s [RANGE 5]) x, {t} WHERE x.m = id", greatest),
    "outer": (f"SELECT x.k, name FROM {VALUES} x LEFT JOIN {{t}} ON x.k = id", values),
    "absent": (f"SELECT x.k, x.n FROM {GROUPS} x WHERE NOT EXISTS (SELECT * FROM {{t}} WHERE x.k = id)", groups),
    "above": (f"SELECT x.k FROM {VALUES} x WHERE EXISTS (SELECT * FROM {{t}} WHERE x.k > id AND name > 'x')", values),
    "totals": (f"SELECT name, SUM(x.n) AS n FROM {GROUPS} x, {{t}} WHERE x.k = id GROUP BY name", groups),
    "both": (
        "SELECT x.k, name FROM (SELECT DISTINCT k FROM s [RANGE 3]) x, (SELECT DISTINCT k FROM r [RANGE 4]) y, {t} "
        "WHERE x.k = y.k AND x.k = id",
        lambda rows, now: values(rows, now, 3),
    ),
}  # fmt: skip


class Births:
    """Since when each row of a relation is there."""

    def __init__(self) -> None:
        self.there: dict[tuple[Any, ...], list[int]] = {}

    def at(self, now: int, rows: Rows) -> list[tuple[tuple[Any, ...], int]]:
        """The rows with their births, when the relation holds these."""
        counts = Counter(rows)
        for row in {*counts, *self.there}:
            known = self.there.get(row, [])
            gone = max(len(known) - counts[row], 0)
            self.there[row] = known[gone:] + [now] * (counts[row] - len(known))
        return [(row, born) for row, births in self.there.items() for born in births]


def defined(query: str, life: Life) -> dict[int, Counter[tuple[Any, ...]]]:
    """What a query answers at every instant."""
    versions = [tuple(v.values()) for v in life._versions().to_pylist()]

    def there(*instants: int) -> Rows:
        return [(i, n) for i, n, a, b in versions if all(a <= at and (b is None or at < b) for at in instants)]

    ours, theirs = life.rows["s"], life.rows["r"]
    relation, mine, other = JOINED[query][1], Births(), Births()
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    for now in range(min(ts for _, ts in (*ours, *theirs)), life.until + 1):
        rows = mine.at(now, relation(ours, now))
        partners = other.at(now, values(theirs, now, 4))
        made: Counter[tuple[Any, ...]] = Counter()
        for row, born in rows:
            met = [name for key, name in there(born) if key == row[0]]
            match query:
                case "outer":
                    made.update((*row, name) for name in met or [None])
                case "absent":
                    made.update([] if met else [row])
                case "above":
                    made.update([row] if any(row[0] > key and name > "x" for key, name in there(born)) else [])
                case "totals":
                    made.update({(name,): row[1] for name in met})
                case "both":
                    dates = [date for (k,), date in partners if k == row[0]]
                    made.update((*row, name) for date in dates for key, name in there(born, date) if key == row[0])
                case _:
                    made.update((*row, name) for name in met)
        found[now] = Counter((*row, n) for row, n in made.items()) if query == "totals" else made
    return found


@pytest.mark.parametrize("first_seed", range(0, 12, 6))
def test_rows_that_queries_make_meet_a_table_once(first_seed, tmp_path):
    """Groups, values and the first few, in joins, outer joins and EXISTS, over partitions and restarts."""
    for seed in range(first_seed, first_seed + 6):
        options = {"home": str(tmp_path / str(seed))} if seed % 3 == 0 else {}
        life = Life(seed, False, {name: text for name, (text, _) in JOINED.items()}, partitions=1 + seed % 3, **options)
        life.live(14)
        life.close()
        for query in JOINED:
            log = [tuple(row.values()) for part in life.found[query] for row in part.to_pylist()]
            for now, want in defined(query, life).items():
                got: Counter[tuple[Any, ...]] = Counter()
                for ts, op, *row in log:
                    got[tuple(row)] += op if ts <= now else 0
                wrong = {row: (got[row], want[row]) for row in {*got, *want} if got[row] != want[row]}
                assert not wrong, f"seed {seed}, {query} at {now}: {wrong}\n{life.changes} {life.rows}"
