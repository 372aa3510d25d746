"""Random CQL over the streams S, T, U and the tables P (plain) and V (valid from since to til).

Each shape is a few lines that write text, so that a failing example reads like something a person wrote. Windows are
small against the data, so much enters and leaves. What DuckDB rejects or leaves to chance is not written: arithmetic
that overflows, interpolation between infinities, and operators that look at the last bits of a variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from windrow.testing.choices import Choices
from windrow.testing.random_asof import asof
from windrow.testing.random_fragments import QueryFragments
from windrow.testing.random_ranks import limited, over
from windrow.testing.random_shed import shed
from windrow.testing.random_summaries import frequent
from windrow.testing.random_windows import window_bounds, window_function

SHAPES = (
    "filter", "join", "table join", "aggregate", "aggregate", "distinct", "set operation", "exists", "outer join",
    "derived", "relation", "wstream", "internal", "mixed", "restore", "table first",
    "window function", "window function", "session", "bounds", "limit", "over", "asof", "frequent",
)  # fmt: skip
"""The shapes that the oracle answers; "shed" is another, of which it answers what stands before SHED BY."""


class Writer(QueryFragments):
    """Writes one query; `exact` means its values will be compared bit by bit, so no variances."""

    def joined(self, period: int | None, parts: int = 0) -> tuple[list[str], str, list[str]]:
        """A FROM clause of streams joined in a chain: aliases, text, and conditions left for WHERE."""
        count = parts or self.pick(2, 2, 3)
        aliases = ["l", "r", "m"][:count]
        texts = [self.stream(w, alias) for alias, w in zip(aliases, self.windows(count, period), strict=True)]
        return aliases, *self.chain(aliases, texts)

    def chain(self, aliases: Sequence[str], texts: Sequence[str]) -> tuple[str, list[str]]:
        conditions = []
        for left, right in pairwise(aliases):
            same = f"{left}.a = {right}.a"
            on = self.pick(same, same, f"{left}.s = {right}.s", f"{right}.b = {left}.a")
            if self.chance(4):
                more = [f"{left}.x < {right}.x", f"{left}.b <> {right}.b", f"{left}.ts <= {right}.ts"]
                more += [] if self.extremes else [f"{left}.a + {right}.b > 1"]
                on += f" AND {self.pick(*more)}"
            conditions.append(on)
        if self.chance(2):
            return ", ".join(texts), conditions
        text = texts[0]
        for part, on in zip(texts[1:], conditions, strict=True):
            text += f" {self.pick('JOIN', 'INNER JOIN')} {part} ON {on}"
        return text, []

    def filter(self) -> str:
        period = self.block_period()
        op = self.operator()
        source = self.stream(self.windows(1, period)[0], "q")
        items = "*" if self.chance(6) else self.items(["q"])
        return f"{self.select(op, items)} FROM {source}{self.where(['q'])}"

    def join(self) -> str:
        op = self.operator()
        aliases, text, conditions = self.joined(self.block_period())
        distinct = self.chance(6)
        return (
            f"{self.select(op, self.items(aliases), distinct)} FROM {text}{self.where(aliases, *conditions, one_in=4)}"
        )

    def table_join(self) -> str:
        op = self.operator()
        period = self.block_period()
        aliases, text, conditions = self.joined(period, parts=self.pick(1, 1, 2))
        table = self.pick("P", "V", "V")
        on = f"{self.pick(*aliases)}.a = p.k"
        if table == "V" and len(aliases) == 2 and self.chance(3):
            on = f"l.a = p.k AND p.k = {self.pick('r.a', 'r.b')}"  # a star: linked to both streams
        if self.chance(2):
            text, conditions = f"{text}, {table} AS p", [*conditions, on]
        else:
            text = f"{text} JOIN {table} AS p ON {on}" if not conditions else f"{text} CROSS JOIN {table} AS p"
            conditions = conditions if "JOIN" in text and "CROSS" not in text else [*conditions, on]
        where = self.where(aliases, *conditions, one_in=4)
        if self.chance(3):
            return f"{self.select(op, 'p.v AS g, COUNT(*) AS n, SUM(p.w) AS t')} FROM {text}{where} GROUP BY p.v"
        return f"{self.select(op, self.items(aliases) + ', p.v, p.w')} FROM {text}{where}"

    def aggregation(self) -> str:
        period = self.block_period()
        op = self.operator()
        if self.chance(4):
            aliases, text, conditions = self.joined(period, parts=2)
        else:
            aliases, text, conditions = ["q"], self.stream(self.windows(1, period)[0], "q"), []
        items, clauses = self.grouped(aliases)
        return f"{self.select(op, items)} FROM {text}{self.where(aliases, *conditions, one_in=4)}{clauses}"

    def distinct(self) -> str:
        op = self.operator()
        aliases, text, conditions = self.joined(self.block_period(), parts=self.pick(1, 1, 2))
        return f"{self.select(op, self.items(aliases), True)} FROM {text}{self.where(aliases, *conditions, one_in=4)}"

    def branch(self, window: str | None = None) -> str:
        """One side of a set operation: two integers."""
        if window is None and self.chance(4):
            return f"SELECT q.a AS c0, COUNT(*) AS c1 FROM {self.stream(self.window(), 'q')} GROUP BY q.a"
        source = self.stream(self.window() if window is None else window, "q")
        distinct = "DISTINCT " if self.chance(6) else ""
        items = self.pick("q.a AS c0, q.b AS c1", f"q.a AS c0, {self.length('q')} AS c1")
        return f"SELECT {distinct}{items} FROM {source}{self.where(['q'], one_in=4)}"

    def set_operation(self) -> str:
        if self.chance(6):
            period = self.period()
            return f"{self.branch(self.periodic_window(period))} UNION ALL {self.branch(self.periodic_window(period))}"
        word = self.pick(
            "UNION ALL", "UNION ALL", "EXCEPT ALL", "EXCEPT ALL", "EXCEPT ALL", "UNION", "EXCEPT", "INTERSECT"
        )
        text = f"{self.branch()} {word} {self.branch()}"
        if word == "UNION ALL" and self.chance(3):
            text += f" UNION ALL {self.branch()}"
        if self.chance(3):
            return f"{self.select(self.operator(), 'q.c0 AS c0, q.c1 AS c1')} FROM ({text}) AS q"
        return text

    def exists(self) -> str:
        period = self.block_period()
        op = self.operator()
        aliases, text, conditions = self.joined(period, parts=self.pick(1, 1, 1, 2))
        outer = self.pick(*aliases)
        inner = self.stream(self.window(slide=period is None), "z")
        kind = self.pick("EXISTS", "NOT EXISTS", "NOT EXISTS", "IN", "NOT IN", "table", "band")
        extra = [self.predicate("z", 0)] if self.chance(3) else []
        if kind in ("IN", "NOT IN"):
            extra += [f"z.s = {outer}.s"] if self.chance(3) else []
            test = f"{outer}.a {kind} (SELECT z.a FROM {inner}{' WHERE ' + ' AND '.join(extra) if extra else ''})"
        elif kind == "table":
            test = f"{self.pick('EXISTS', 'NOT EXISTS')} (SELECT 1 FROM P WHERE P.k = {outer}.a)"
        else:
            links = [f"z.x > {outer}.x"] if kind == "band" else [f"z.{self.pick('a', 's')} = {outer}.{self.pick('a')}"]
            links = [link.replace(f"z.s = {outer}.a", f"z.s = {outer}.s") for link in links]
            if kind != "band" and self.chance(3):
                links.append(f"z.x {self.pick('<', '>', '<>')} {outer}.x")
            word = self.pick("EXISTS", "NOT EXISTS") if kind == "band" else kind
            test = f"{word} (SELECT {self.pick('*', '1', 'z.a')} FROM {inner} WHERE {' AND '.join([*links, *extra])})"
        return f"{self.select(op, self.items(aliases))} FROM {text}{self.where(aliases, *conditions, test, one_in=4)}"

    def outer_join(self) -> str:
        period = self.block_period()
        op = self.operator()
        left, right = (self.stream(w, alias) for w, alias in zip(self.windows(2, period), "lr", strict=True))
        kind = self.pick("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN", "table")
        where = self.where(["l"], one_in=4) if kind in ("LEFT JOIN", "table") else ""
        if kind == "table":
            select = self.select(op, self.items("l") + ", p.v, p.w")
            return f"{select} FROM {left} LEFT JOIN {self.pick('P', 'V')} AS p ON l.a = p.k{where}"
        on = self.pick("l.a = r.a", "l.s = r.s") + (
            f" AND {self.pick('l.x < r.x', 'r.a > 0')}" if self.chance(3) else ""
        )
        if kind == "FULL JOIN" and self.chance(3):
            return f"{self.select(op, 'a, l.b AS c0, r.b AS c1')} FROM {left} FULL OUTER JOIN {right} USING (a)"
        return f"{self.select(op, self.items('lr'))} FROM {left} {kind} {right} ON {on}{where}"

    def table_first(self) -> str:
        """A table that a stream decides about: its rows have always been there."""
        period = self.block_period()
        op = self.operator()
        stream = self.stream(self.windows(1, period)[0], "q")
        kind = self.pick("LEFT JOIN", "LEFT JOIN", "EXISTS", "NOT EXISTS", "NOT EXISTS", "IN")
        text = f"P AS p LEFT JOIN {stream} ON p.k = q.a{self.pick('', f' AND q.{self.measure} > p.w')}"
        if kind == "IN":
            text = f"P AS p WHERE p.k IN (SELECT q.a FROM {stream})"
        elif kind != "LEFT JOIN":
            text = f"P AS p WHERE {kind} (SELECT 1 FROM {stream} WHERE {self.pick('q.a = p.k', 'q.b > p.k')})"
        value = self.pick("q.b", f"q.{self.measure}", "p.w") if kind == "LEFT JOIN" else "p.w"
        calls = f"COUNT(*) AS n, {self.pick('COUNT', 'SUM', 'MIN', 'LIST')}({value}) AS t"
        if self.chance(3):
            more = f", COUNT(*) OVER (PARTITION BY {self.pick('p.k', value)}) AS c2" if self.chance(2) else ""
            return f"{self.select(op, f'p.k AS c0, {value} AS c1{more}', self.chance(3))} FROM {text}"
        if self.chance(2):
            return f"{self.select(op, f'p.k AS g, {calls}')} FROM {text} GROUP BY p.k"
        return f"{self.select(op, calls)} FROM {text}"

    def inner_stream(self) -> str:
        """A subquery that is a stream, with the integer columns a and b."""
        kind = self.pick("operator", "operator", "periodic", "internal")
        if kind == "periodic":
            source, op = (
                self.stream(self.periodic_window(self.period()), "i"),
                self.pick("", "ISTREAM", "DSTREAM", "RSTREAM"),
            )
        elif kind == "internal":
            window = self.pick(self.time_window(internal=True), self.rows_window(["a"], internal=True))
            source, op = self.stream(window, "i"), ""
        else:
            source, op = self.stream(self.window(), "i"), self.pick("ISTREAM", "DSTREAM", "RSTREAM")
        items = self.pick(
            "i.a AS a, i.b AS b", "i.a AS a, i.b AS b", "i.a AS a, COUNT(*) AS b", "COUNT(*) AS a, SUM(i.a) AS b"
        )
        group = " GROUP BY i.a" if items == "i.a AS a, COUNT(*) AS b" else ""
        return f"{self.select(op, items)} FROM {source}{self.where(['i'], one_in=4)}{group}"

    def derived(self) -> str:
        inner = self.inner_stream()
        period = self.period() if self.chance(4) else None
        window = self.periodic_window(period) if period else self.window(partitions=("a",))
        source = self.pick(f"({inner}) AS q {window}", f"({inner}) {window} AS q").strip()
        op = self.operator()
        kind = self.pick("values", "aggregate", "aggregate", "join")
        if kind == "join":
            other = self.stream(self.window(slide=period is None), "r")
            return f"{self.select(op, 'q.a AS c0, q.b AS c1, r.x AS c2')} FROM {source}, {other} WHERE q.a = r.a"
        if kind == "aggregate":
            key = self.chance(2)
            items = ("q.a AS g, " if key else "") + "COUNT(*) AS n, SUM(q.b) AS t, MAX(q.b) AS m"
            return f"{self.select(op, items)} FROM {source}{' GROUP BY q.a' if key else ''}"
        return f"{self.select(op, 'q.a AS c0, q.b AS c1')} FROM {source}{' WHERE q.b > 0' if self.chance(3) else ''}"

    def relation(self) -> str:
        """A subquery that is a relation, filtered, counted or joined outside; its SLIDE is that of the whole."""
        period = self.block_period()
        source = self.stream(self.windows(1, period)[0], "i")
        inner = f"SELECT i.a AS a, COUNT(*) AS n, MAX(i.x) AS m FROM {source} GROUP BY i.a"
        op = self.operator()
        kind = self.pick("filter", "aggregate", "join")
        if kind == "filter":
            return f"{self.select(op, 'q.a AS c0, q.n + 1 AS c1, q.m AS c2')} FROM ({inner}) AS q WHERE q.n > 1"
        if kind == "aggregate":
            return f"{self.select(op, 'q.n AS g, COUNT(*) AS c, MAX(q.a) AS m')} FROM ({inner}) AS q GROUP BY q.n"
        other = self.stream(self.window(slide=period is None), "r")
        return f"{self.select(op, 'q.a AS c0, q.n AS c1, r.x AS c2')} FROM ({inner}) AS q, {other} WHERE q.a = r.a"

    def wstream(self) -> str:
        self.exact = True
        period = self.block_period()
        window = self.pick(f"[ROWS {self.number(1, 4)}]", f"[RANGE {self.time(self.number(1, 9))}]")
        if self.chance(3):
            aliases, text, conditions = self.joined(period, parts=2)
            return f"SELECT WSTREAM({self.items(aliases)}){window} FROM {text}{self.where(aliases, *conditions)}"
        source = self.stream(self.windows(1, period)[0], "q")
        if self.chance(2):
            inner = self.pick("SUM(q.a)", "COUNT(*)", "MAX(q.b)", "q.a", "q.b")
            outer = (
                self.pick("SUM", "MAX", "MIN", "COUNT", "AVG")
                if not self.extremes
                else self.pick("MAX", "MIN", "COUNT")
            )
            return f"SELECT {outer}(WSTREAM({inner}){window}) AS c0 FROM {source}{self.where(['q'])}"
        items, clauses = self.grouped(["q"])
        return f"SELECT WSTREAM({items}){window} FROM {source}{self.where(['q'])}{clauses}"

    def internal(self) -> str:
        self.exact = True
        aliases = ["l", "r"][: self.pick(1, 2)]
        windows = [self.pick(self.time_window(internal=True), self.rows_window(("a",), internal=True)) for _ in aliases]
        text, conditions = self.chain(aliases, [self.stream(w, a) for w, a in zip(windows, aliases, strict=True)])
        op = self.operator("ISTREAM", "RSTREAM")
        items, clauses = self.grouped(aliases) if self.chance(3) else (self.items(aliases), "")
        return f"{self.select(op, items)} FROM {text}{self.where(aliases, *conditions)}{clauses}"

    def mixed(self) -> str:
        aliases = ["l", "r", "m"][: self.pick(2, 2, 3)]
        other = self.periodic_window(self.period()) if self.chance(4) else self.time_window()
        windows = [self.time_window(internal=True), other, self.time_window(internal=self.chance(2))]
        order = self.shuffled(windows[: len(aliases)])
        text, conditions = self.chain(aliases, [self.stream(w, a) for w, a in zip(order, aliases, strict=True)])
        return f"{self.select(self.operator(), self.items(aliases))} FROM {text}{self.where(aliases, *conditions)}"

    def restore(self) -> str:
        self.exact = True
        period = self.period()
        op = self.pick("ISTREAM_RESTORE", "RSTREAM_RESTORE", "Istream-restore", "Rstream-restore")
        aliases, text, conditions = self.joined(period, parts=self.pick(1, 2))
        if self.chance(3):
            items, clauses = self.grouped(aliases)
        else:
            items, clauses = self.items(aliases), ""
        return f"SELECT {op}({items}) FROM {text}{self.where(aliases, *conditions)}{clauses}"

    def write(self, shape: str) -> str:
        shapes: dict[str, Callable[[], str]] = {
            "filter": self.filter, "join": self.join, "table join": self.table_join, "aggregate": self.aggregation,
            "distinct": self.distinct, "set operation": self.set_operation, "exists": self.exists,
            "outer join": self.outer_join, "derived": self.derived, "relation": self.relation, "wstream": self.wstream,
            "internal": self.internal, "mixed": self.mixed, "restore": self.restore, "table first": self.table_first,
            "window function": lambda: window_function(self), "session": lambda: window_function(self, session=True),
            "bounds": lambda: window_bounds(self), "limit": lambda: limited(self), "over": lambda: over(self),
            "asof": lambda: asof(self),
            "frequent": lambda: frequent(self), "shed": lambda: shed(self),
        }  # fmt: skip
        return shapes[shape]()


def random_query(choices: Choices, clock: str, shapes: Sequence[str], specials: bool, extremes: bool) -> str:
    """One query over S, T, U and the tables P and V, of one of the shapes."""
    writer = Writer(choices, clock, specials, extremes)
    return writer.write(writer.pick(*shapes))
