"""The parts that random queries are written of: times, windows, values, predicates, aggregates and select lists."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.testing.choices import Choices, Chooser
from windrow.testing.random_data import TICKS
from windrow.testing.random_values import by_value

STREAMS = ("S", "T", "U")


class QueryFragments(Chooser):
    """Writes parts of one query; `exact` means its values will be compared bit by bit, so no variances.

    `measure` is the column that is added up and compared with the numbers of tables.
    """

    measure = "x"
    tables_in_time = True  # whether numbers of tables have an order that ASOF JOIN keeps

    def __init__(self, choices: Choices, clock: str, specials: bool, extremes: bool) -> None:
        super().__init__(choices)
        self.clock = clock
        self.specials = specials
        self.extremes = extremes
        self.exact = False

    def time(self, n: int) -> str:
        if self.clock == TICKS:
            return str(n)
        return self.pick(f"{n} SECONDS", f"{n} sec", f"'{n} sec'")

    def time_window(self, internal: bool = False) -> str:
        kind = self.pick("range", "range", "range", "range", "range", "range", "now", "unbounded")
        suffix = " INTERNAL" if internal else ""
        if kind == "now":
            return f"[NOW{suffix}]"
        if kind == "unbounded":
            return f"[{self.pick('RANGE UNBOUNDED', 'WINDOW UNTIL NOW')}{suffix}]"
        return f"[{self.pick('RANGE', 'RANGE', 'WINDOW')} {self.time(self.number(1, 10))}{suffix}]"

    def rows_window(self, partitions: Sequence[str], slide: bool = True, internal: bool = False) -> str:
        partition = f"PARTITION BY {self.pick(*partitions)} " if partitions and self.chance(2) else ""
        step = f" SLIDE {self.number(1, 4)}" if slide and self.chance(3) else ""
        return f"[{partition}ROWS {self.number(1, 4)}{step}{' INTERNAL' if internal else ''}]"

    def window(self, slide: bool = True, partitions: Sequence[str] = ("a", "s", "a, s")) -> str:
        """A window of a continuous block (or, without `slide`, one that a periodic block may look at)."""
        kind = self.pick("time", "time", "time", "rows", "none")
        if kind == "none":
            return ""
        return self.time_window() if kind == "time" else self.rows_window(partitions, slide)

    def period(self) -> int:
        return self.number(1, 6)

    def periodic_window(self, period: int) -> str:
        """SLIDE below, at and above RANGE, and not dividing it."""
        size = self.pick(
            f"RANGE {self.time(self.number(1, 10))}",
            f"RANGE {self.time(self.number(2, 10))}",
            f"RANGE {self.time(period)}",
            f"RANGE {self.time(period)}",
            "RANGE UNBOUNDED",
            "NOW",
        )
        return f"[{size} SLIDE {self.time(period)}]"

    def windows(self, count: int, period: int | None) -> list[str]:
        """Windows for the streams of one block."""
        if period is None:
            return [self.window() for _ in range(count)]
        found = [self.periodic_window(period)]
        return found + [self.pick(self.periodic_window(period), self.window(slide=False)) for _ in range(count - 1)]

    def stream(self, window: str, alias: str, name: str | None = None) -> str:
        name = name or self.pick(*STREAMS)
        return self.pick(
            f"{name} AS {alias} {window}", f"{name} {window} AS {alias}", f"{name} {alias} {window}"
        ).strip()

    def block_period(self) -> int | None:
        return self.period() if self.chance(3) else None

    def length(self, alias: str) -> str:
        """A small integer that is made of s."""
        return f"length({alias}.s)"

    def integer(self, alias: str) -> str:
        plain = [f"{alias}.a", f"{alias}.b"]
        more = [f"{alias}.b % 3", f"coalesce({alias}.a, -1)", self.length(alias), f"{alias}.a + 1"]
        if not self.extremes:
            more += [f"{alias}.a + {alias}.b", f"{alias}.b * 2 - {alias}.a", f"abs({alias}.b)", f"-{alias}.b"]
            more += [f"CASE WHEN {alias}.f THEN {alias}.a ELSE {alias}.b END"]
        return self.pick(*plain, *plain, *more)

    def floating(self, alias: str) -> str:
        return self.pick(
            f"{alias}.x", f"{alias}.x", f"{alias}.x * 2", f"{alias}.x + {alias}.a", f"{alias}.a / 2", f"-{alias}.x"
        )

    def value(self, alias: str) -> str:
        """Any scalar of a source."""
        text = self.pick(f"{alias}.s", f"upper({alias}.s)", f"{alias}.s || 'z'", f"coalesce({alias}.s, 'none')")
        other = self.pick(
            f"{alias}.f", f"NOT {alias}.f", f"{alias}.ts", f"{alias}.x > 0.5", f"CAST({alias}.a AS VARCHAR)"
        )
        return self.pick(self.integer(alias), self.integer(alias), self.floating(alias), text, other)

    def predicate(self, alias: str, depth: int = 1) -> str:
        if depth and self.chance(3):
            left, right = self.predicate(alias, depth - 1), self.predicate(alias, depth - 1)
            return self.pick(f"({left} OR {right})", f"({left} OR {right})", f"{left} AND {right}", f"NOT ({left})")
        return self.pick(
            f"{alias}.a {self.pick('=', '<>', '<', '>=')} {self.number(0, 3)}",
            f"{alias}.b > {self.number(-2, 3)}",
            f"{alias}.x <= {self.number(-2, 8) / 4}",
            f"{alias}.s = 'p'", f"{alias}.s LIKE 'p%'", f"{alias}.s IN ('p', 'q')",
            f"{alias}.a IS NOT NULL", f"({alias}.x IS NULL OR {alias}.x < 1)",
            f"{alias}.f", f"{alias}.b BETWEEN -1 AND 3",
        )  # fmt: skip

    def where(self, aliases: Sequence[str], *required: str, one_in: int = 3) -> str:
        found = list(required)
        if self.chance(one_in):
            found.append(self.predicate(self.pick(*aliases)))
        return f" WHERE {' AND '.join(found)}" if found else ""

    def items(self, aliases: Sequence[str]) -> str:
        """A SELECT list of scalars, named c0, c1, ..."""
        values = [self.value(self.pick(*aliases)) for _ in range(self.number(1, 3))]
        return ", ".join(f"{v} AS c{i}" for i, v in enumerate(values))

    def aggregate(self, alias: str) -> str:
        column = self.pick(self.integer(alias), self.floating(alias))
        calls = [
            "COUNT(*)", "COUNT(*)", f"COUNT({self.value(alias)})",
            f"COUNT(DISTINCT {alias}.{self.pick('a', 's', 'x')})",
            f"SUM({column})", f"SUM({column})", f"SUM(DISTINCT {alias}.b)",
            f"MIN({column})", f"MAX({column})", f"MIN({alias}.s)", f"MAX({alias}.s)",
            f"TOP_K({alias}.{self.pick('a', 's', 'b')}, {self.number(1, 3)})",
            f"QUANTILE({alias}.{self.pick('a', 'b', 'x')}, 0.25)", f"QUANTILE_DISC({alias}.a, {self.pick(0.5, 0.75)})",
            f"AVG({alias}.a)",
        ]  # fmt: skip
        if not self.specials:
            calls += [
                f"AVG({self.floating(alias)})",
                f"MEDIAN({alias}.x)",
                f"QUANTILE_CONT({alias}.x, {self.pick(0.25, 0.75)})",
            ]
        if not self.extremes:
            calls += [f"AVG({alias}.b)", f"MEDIAN({alias}.b)"]
        if not (self.exact or self.extremes):
            kind = self.pick("VARIANCE", "STDDEV", "VAR_POP", "STDDEV_POP", "VAR_SAMP", "STDDEV_SAMP")
            calls += [f"{kind}({alias}.{self.pick('a', 'b', 'x')})"] * 3
        call = by_value(self, alias) if self.chance(4) else self.pick(*calls)
        return f"{call} FILTER (WHERE {self.predicate(alias, 0)})" if self.chance(5) else call

    def grouped(self, aliases: Sequence[str]) -> tuple[str, str]:
        """A SELECT list of keys and aggregates, and the clauses after WHERE."""
        alias = self.pick(*aliases)
        chosen = self.pick("", "a", "a", "s", "f", "a s", "b%2", "x")
        keys = [f"{alias}.{k}".replace("%", " % ") for k in chosen.split()]
        calls = [self.aggregate(self.pick(*aliases)) for _ in range(self.number(1, 3))]
        values = [*keys, *calls]
        clauses = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self.chance(4):
            condition = self.pick(
                "COUNT(*) > 1", f"MAX({alias}.a) >= 1", f"SUM({alias}.a) > 2", f"COUNT({alias}.a) <> 2"
            )
            clauses += f" HAVING {condition}"
        return ", ".join(f"{v} AS c{i}" for i, v in enumerate(values)), clauses

    def operator(self, *options: str) -> str:
        """A stream operator or none; those that compare answers make the query exact."""
        op = self.pick("", "", *(options or ("ISTREAM", "DSTREAM", "RSTREAM")))
        self.exact = self.exact or op != ""
        return op

    def select(self, op: str, items: str, distinct: bool = False) -> str:
        word = "DISTINCT " if distinct else ""
        if not op:
            return f"SELECT {word}{items}"
        shown = self.pick(op, op.capitalize())
        return self.pick(f"SELECT {shown}({word}{items})", f"SELECT {word}{shown}({items})")
