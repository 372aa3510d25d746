"""Texts of CQL from a seed and a number: from a grammar wider than the language, or mutated from known ones.

The grammar knows four kinds of values and mixes them up in one place of twelve, so most texts come past the parser and
many mean something. A mutation leaves out, doubles, exchanges or replaces tokens, by one of the same kind or by any.
"""

from __future__ import annotations

import random
import re

DECLARED = """
CREATE STREAM s (a BIGINT, x DOUBLE, n VARCHAR, l BIGINT[], p STRUCT(f BIGINT, g VARCHAR), ts BIGINT) RETAIN 100;
CREATE STREAM u (a BIGINT, d DECIMAL(9, 2), b BOOLEAN, ts BIGINT);
CREATE TABLE r (a BIGINT, name VARCHAR);
CREATE TABLE c (a BIGINT, name VARCHAR) KEY (a) CHANGES BY op;
CREATE TABLE w (a BIGINT, lim DOUBLE) RETROACTIVE;
"""
CORPUS = (
    "SELECT a, x FROM s [RANGE 10] WHERE a > 1 AND x IS NOT NULL",
    "SELECT a, COUNT(*) AS n, SUM(x) AS t FROM s [RANGE 10 SLIDE 5] GROUP BY a HAVING COUNT(*) > 1",
    "SELECT ISTREAM(s.a, u.d) FROM s [RANGE 5], u [ROWS 3] WHERE s.a = u.a",
    "SELECT DISTINCT n FROM s [NOW]",
    "SELECT r.name, s.x FROM r LEFT JOIN s [RANGE 4] ON r.a = s.a",
    "SELECT a, MAX(x) FROM s [PARTITION BY a ROWS 2] GROUP BY a",
    "SELECT a FROM s [RANGE 5] WHERE EXISTS (SELECT * FROM u [RANGE 5] WHERE u.a = s.a)",
    "SELECT a FROM s [RANGE 5] WHERE a NOT IN (SELECT a FROM u [RANGE 5])",
    "SELECT a FROM s [RANGE 5] UNION ALL SELECT a FROM u [RANGE 5]",
    "SELECT * FROM (SELECT a, COUNT(*) AS c FROM s [RANGE 6 SLIDE 2] GROUP BY a) q WHERE c > 1",
    "WITH w AS (SELECT a, x FROM s [RANGE 9]) SELECT w.a, AVG(w.x) FROM w GROUP BY w.a",
    "SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY x) AS k FROM s [ROWS 5] QUALIFY k <= 2",
    "SELECT n FROM s [RANGE 9] ORDER BY x DESC LIMIT 3",
    "SELECT a, string_agg(n, ',' ORDER BY ts) FROM s [RANGE 9 SLIDE 3] GROUP BY ROLLUP (a)",
    "SELECT window_start, COUNT(*) FROM TUMBLE(s, ts, 3) GROUP BY window_start",
    "SELECT a, COUNT(*) FROM SESSION(s PARTITION BY a, ts, 2) GROUP BY a",
    "SELECT UNNEST(l) AS e, p.f, list_transform(l, lambda v: v + 1) FROM s [ROWS 4]",
    "SELECT CASE WHEN a = 1 THEN 'x' ELSE upper(n) END, CAST(a AS DECIMAL(9, 2)), l[1], n LIKE 'o%' FROM s",
    "SELECT date_trunc('hour', TIMESTAMP '2020-01-01 10:30:00') + INTERVAL 5 MINUTES FROM s [RANGE 3]",
    "SELECT EXTRACT(year FROM DATE '2020-02-29') AS y, COUNT(*) FILTER (WHERE a > 1) FROM s [RANGE 3 SLIDE 1]",
    "EXPLAIN SELECT a FROM s [RANGE 10 SLIDE 5]",
    "CREATE QUERY q AS SELECT a FROM s [RANGE 9] WHERE a = 1; CREATE QUERY z AS SELECT a FROM s [RANGE 9] WHERE a = 2",
    "CREATE TEMPLATE al (k BIGINT, m DOUBLE) AS SELECT a FROM s WHERE a = $k AND x > $m; "
    "CREATE QUERIES g FROM TEMPLATE al VALUES (1, 2.5), (2, NULL)",
    "CREATE TEMPLATE al (a BIGINT, lim DOUBLE) AS SELECT COUNT(*) FROM s [RANGE 9 SLIDE 3] WHERE a = $a AND x > $lim; "
    "CREATE QUERIES g FROM TEMPLATE al USING TABLE w",
    "CREATE TABLE k (a BIGINT, b VARCHAR) KEY (a, b) CHANGES BY o ON ERROR QUARANTINE; SELECT a FROM s",
    "CREATE TABLE k (a BIGINT, f BIGINT, g BIGINT) VALID FROM f TO g; SELECT s.a FROM s [RANGE 5] JOIN r ON s.a = r.a",
    "SELECT s.a, c.name FROM s [RANGE 6], c WHERE s.a = c.a AND c.name <> 'x'",
    "SELECT s.a, w.lim, COUNT(*) FROM s [RANGE 6 SLIDE 2], w WHERE s.a = w.a AND s.x < w.lim GROUP BY s.a, w.lim",
    "SELECT FREQUENT(a, 2) AS f, FREQUENT_DELTA(a, 2) AS e FROM s [RANGE 6 SLIDE 2]",
    "SELECT n, FREQUENT(x, 3, 0.5), len(FREQUENT(a, 1, 2)) FROM s [ROWS 6 SLIDE 2] GROUP BY n",
    "CREATE FUNCTION half(v DOUBLE) AS v / 2; SELECT half(x), half(SUM(a)) FROM s [RANGE 5] GROUP BY x",
    "CREATE FUNCTION spread(low, high) AS MAX(high) - MIN(low); SELECT a, spread(x, ts) FROM s [RANGE 5] GROUP BY a",
    "SELECT window_start, window_end, COUNT(*) FROM CUMULATE(s, ts, 2, 4) GROUP BY window_start, window_end",
    "SELECT a, x FROM s [RANGE 5] LATEST ON ts PARTITION BY a",
    "SELECT COLUMNS('a|x'), MAX(COLUMNS(* EXCLUDE (l, p, n))) FROM s [RANGE 5] GROUP BY ALL",
    "SELECT COLUMNS(['a', 'ts']) + 1, * EXCLUDE (l) REPLACE (a + 1 AS a) FROM s [ROWS 3]",
    "SELECT * FROM (SELECT a, ts FROM s [RANGE 5]) UNPIVOT (v FOR k IN (a, ts))",
    "SELECT * FROM (SELECT a, x, n FROM s [RANGE 5 SLIDE 5]) PIVOT (SUM(x) FOR a IN (1, 2))",
)  # fmt: skip
REFUSED = (
    "SELECT s.a, u.d FROM s [RANGE 9] ASOF JOIN u [RANGE 9] ON s.a = u.a AND s.ts >= u.ts",
    "CREATE VIEW v AS SELECT a, x FROM s [RANGE 7] WHERE a > 0; SELECT a, MIN(x) FROM v GROUP BY a",
    "CREATE STREAM t (k BIGINT, ts TIMESTAMP) TIMESTAMP BY ts WITHIN 5 SECONDS RETAIN 10 MINUTES; SELECT k FROM t",
    "CREATE ARCHIVE h AS SELECT a, x FROM s [RANGE 20] KEY a EVERY 10",
    "CREATE OR REPLACE VIEW v AS SELECT a, MAX(x) AS m FROM s [RANGE 7 SLIDE 7] GROUP BY a; SELECT a FROM v",
    "CREATE QUERY q AS SELECT a FROM s; CREATE SINK o FOR q TO postgres (dsn => 'x', table => 't')",
    "ALTER STREAM u ADD COLUMN z BIGINT; ALTER TABLE r DROP COLUMN name; DROP TABLE IF EXISTS w; SELECT a FROM s",
    "CREATE STREAM t (k BIGINT, v DOUBLE, ts TIMESTAMP); SELECT ts, k, AVG(v) FROM t SAMPLE BY 2h",
    "CREATE STREAM t (k BIGINT, v DOUBLE, ts TIMESTAMP); SELECT ts, SUM(k) FROM t SAMPLE BY 1d ALIGN TO CALENDAR",
    "CREATE SINK o FOR q TO parquet (path => 'x'); SELECT a FROM s [SHED 5 BY x]",
)  # fmt: skip
"""Texts that a replay refuses for what they mean, not for how they are written."""

_WORDS = r"""
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET DISTINCT ALL AS ON USING JOIN LEFT FULL OUTER CROSS ASOF
UNION EXCEPT INTERSECT WITH RECURSIVE IN EXISTS NOT AND OR IS NULL BETWEEN LIKE ESCAPE CASE WHEN THEN ELSE END
CAST OVER PARTITION RANGE ROWS SLIDE NOW UNBOUNDED INTERNAL ISTREAM DSTREAM RSTREAM WSTREAM RESTORE TUMBLE HOP
SESSION KEEP SHED CUMULATE SAMPLE LATEST COLUMNS UNPIVOT PIVOT FREQUENT KEY CHANGES SINK FUNCTION VIEW
CREATE DROP QUERY STREAM TABLE TEMPLATE ARCHIVE EXPLAIN INTERVAL DAY EXTRACT FILTER WITHIN
QUALIFY WINDOW UNNEST LATERAL VALUES s u r a x n l p ts name q s.a u.a p.f count(*) sum max 0 1 2 -1 0.5 1e300
99999999999999999999 9223372036854775807 '' 'x' 'it''s' "q" NaN TRUE ( ) [ ] { } , . ; : :: + - * / // % || ->
->> = <> < >= @ $ ? $k ! ~ & | << ^ ** :=
"""
WORDS = _WORDS.split()
ALIKE = tuple(
    group.split()
    for group in (
        "a x n l p ts name d b s.a u.a p.f", "s u r c w", "0 1 2 3 5 10 -1 0.5 1e9 9223372036854775807",
        "+ - * / // % ||", "= <> < <= > >=", "AND OR",
        "SUM COUNT MIN MAX AVG MEDIAN FIRST LIST MODE STDDEV ARG_MAX", "RANGE ROWS SLIDE",
        "ISTREAM DSTREAM RSTREAM WSTREAM DISTINCT", "JOIN UNION EXCEPT INTERSECT",
        "LEFT RIGHT FULL CROSS ASOF SEMI ANTI",
        "upper lower length abs round", "EXISTS IN LIKE IS NOT", "TUMBLE HOP SESSION CUMULATE", "ROLLUP CUBE",
        "BIGINT DOUBLE VARCHAR",
    )
)  # fmt: skip
"""Tokens that stand in the same places: one is exchanged for another of its line."""

ODD = tuple(chr(c) for c in (0, 9, 39, 34, 92, 127, 160, 0x2028, 0xD800, 0xE000, 0x1F600, 36, 96))

VALUES = {
    "number": (
        "<n>", "<column>", "<column>", "<column>", "<number> <arithmetic> <number>", "<number> <arithmetic> <number>",
        "-<number>", "<of_number>(<number>)", "<aggregate>(<number>)", "<aggregate>(DISTINCT <number>)",
        "length(<text>)",
        "CASE WHEN <boolean> THEN <number> ELSE <number> END", "FREQUENT_DELTA(<any>, <n>)",
        "half(<number>)", "CAST(<any> AS <type>)", "u.d",
        "TRY_CAST(<text> AS BIGINT)", "l[<n>]",
        "sum(<number>) FILTER (WHERE <boolean>)", "(SELECT max(<number>) FROM u [RANGE 3])", "window_start",
        "coalesce(<number>, <number>)",
        "<ranked> OVER (PARTITION BY <any> ORDER BY <any>)", "EXTRACT(<unit> FROM <time>)",
        "list_reduce(l, lambda v, w: v + w)",
    ),
    "text": (
        "'x'", "<column>", "<column>", "<text> || <text>", "<of_text>(<text>)", "substr(<text>, <number>, <n>)",
        "string_agg(<text>, ',')", "<any>::VARCHAR", "repeat(<text>, <n>)", "<text> COLLATE NOCASE",
        "regexp_replace(<text>, <text>, <text>)",
        "strftime(<time>, '%Y')", "CASE <number> WHEN <n> THEN <text> END", "min(<text>)",
    ),
    "boolean": (
        "<number> <compared> <number>", "<number> <compared> <number>", "<text> <compared> <text>",
        "<boolean> AND <boolean>", "TRUE",
        "<boolean> OR <boolean>", "NOT <boolean>", "<any> IS NULL", "<any> IS DISTINCT FROM <any>",
        "<number> BETWEEN <number> AND <number>",
        "<any> IN (<any>, <any>)", "<text> LIKE <text>", "<text> LIKE <text> ESCAPE <text>", "EXISTS (<query>)",
        "<number> IN (<query>)",
        "<number> <compared> ALL (<query>)", "regexp_matches(<text>, <text>)",
    ),
    "time": (
        "DATE '2020-02-29'", "TIMESTAMP '2020-01-01 10:30:00'", "<time> + INTERVAL <n> <unit>",
        "date_trunc('day', <time>)",
        "to_timestamp(<number>)", "<time> AT TIME ZONE 'UTC'",
    ),
    "any": (
        "<number>", "<number>", "<text>", "<boolean>", "<time>", "NULL", "<column>", "[<any>, <any>]",
        "{'f': <any>}", "(<any>, <any>)",
        "MAP {<any>: <any>}", "(<any>).f", "<any>[<number>]", "<any>[<n>:<n>]", "<column>",
        "list_transform(l, lambda v: <number>)", "<any>::<type>",
        "list(<any>)", "unnest(<any>)", "<unknown>(<any>)", "list_sort(<any>)",
        "FREQUENT(<any>, <n>)", "FREQUENT(<any>, <n>, <number>)",
        "COLUMNS('<alias>|x')", "COLUMNS(*)", "<any> -> <any>", "q.c", '"A"',
    ),
}  # fmt: skip
"""How a value of a kind is written; <...> stands for another."""

NAMED = {
    "arithmetic": ("+", "-", "*", "/", "//", "%", "<<", "&", "^"),
    "compared": ("=", "<>", "<", "<=", ">", ">="),
    "aggregate": ("count", "sum", "min", "max", "avg", "median", "first", "last", "stddev", "mode", "product", "top_k"),
    "ranked": ("row_number()", "rank()", "lag(x)", "sum(x)", "ntile(2)", "first_value(a)"),
    "of_number": ("abs", "round", "sqrt", "ln", "floor", "chr", "hash", "sign", "isnan"),
    "of_text": ("upper", "lower", "trim", "reverse", "md5"),
    "unknown": ("nope", "now", "random", "read_text", "range", "struct_extract", "list_aggr", "grouping", "date_part"),
    "type": (
        "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL(38, 5)", "INT[]", "INTERVAL", "UUID",
        "JSON",
        "STRUCT(f INT)", "MAP(INT, INT)", "HUGEINT", "BLOB", "NOPE", "TIMESTAMPTZ", "UTINYINT",
    ),
    "unit": ("DAY", "HOUR", "MINUTE", "SECOND", "YEAR", "NOPE"),
    "n": ("1", "2", "3", "5", "10") * 30 + (
        "0", "-1", "1.5", "1e9", "10 SECONDS", "9223372036854775807", "9223372036854775808", "'2'", "1e400",
    ),
}  # fmt: skip
COLUMNS = {
    "number": {
        "s": ("a", "x", "ts", "p.f", "l[1]"),
        "u": ("a", "d", "ts"),
        "r": ("a",),
        "c": ("a",),
        "w": ("a", "lim"),
    },
    "text": {"s": ("n", "p.g"), "u": ("d::VARCHAR",), "r": ("name",), "c": ("name",), "w": ("lim::VARCHAR",)},
    "any": {
        "s": ("a", "x", "n", "l", "p"),
        "u": ("a", "d", "b"),
        "r": ("a", "name"),
        "c": ("a", "name"),
        "w": ("a", "lim"),
    },
}
WINDOWS = (
    "[RANGE <n>]", "[RANGE <n> SLIDE 5]", "[RANGE <n> SLIDE <n>]", "[ROWS <n>]", "[NOW]", "[UNBOUNDED]",
    "[PARTITION BY a ROWS <n>]", "[RANGE <n> INTERNAL]",
    "[RANGE <n> SLIDE AT MOST <n>]", "",
)  # fmt: skip
_HOLE = re.compile(r"<(\w+)>")
_TOKENS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)


def text_of(seed: int, number: int) -> str:
    """The text of a number.

    >>> text_of(1, 2) == text_of(1, 2)
    True
    """
    chance = random.Random(seed * 1_000_003 + number)
    if chance.random() < 0.5:
        return Grammar(chance).statement()
    return mutated(chance.choice(CORPUS + REFUSED), chance)


def tokens(text: str) -> list[str]:
    """A text in tokens, white space too: joined they are the text."""
    return _TOKENS.findall(text)


class Grammar:
    """Random texts of the language and a little beyond it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._known: tuple[tuple[str, str], ...] = ()  # what FROM names: (name, of which stream or table)

    def statement(self) -> str:
        """A script of one or two statements."""
        pick = self._chance.random()
        if pick < 0.75:
            return self.query(2)
        if pick < 0.85:
            return f"CREATE QUERY {self._one('q', 's', 'z')} AS {self.query(1)}; {self.query(1)}"
        if pick < 0.9:
            return f"EXPLAIN {self._one('', '(FORMAT JSON)', '(FORMAT DOT)')} {self.query(2)}"
        if pick < 0.94:
            return self.declaration()
        if pick < 0.97:
            kind = self._one("BIGINT", *NAMED["type"])
            return f"CREATE STREAM t (k {self._one(*NAMED['type'])}, ts {kind}) {self._clauses()}; SELECT * FROM t"
        return f"CREATE ARCHIVE h AS {self.query(1)} KEY {self._one('a', 'x', 'n')} EVERY {self._number()}"

    def declaration(self) -> str:
        """Something that is declared, and used."""
        one, column = self._one, self._one("a", "x", "n", "zz")
        match one("table", "view", "function", "template", "sink"):
            case "table":
                key = one("KEY (k)", f"KEY ({column})", "KEY (k, v)", "", "RETROACTIVE", "VALID FROM k TO v")
                told = one("CHANGES BY op", f"CHANGES BY {column}", "", "ON ERROR QUARANTINE")
                types = one(*NAMED["type"]), one(*NAMED["type"])
                return f"CREATE TABLE t (k {types[0]}, v {types[1]}) {key} {told}; {self.query(1)}"
            case "view":
                return f"CREATE VIEW v AS {self.query(1)}; SELECT {one('*', column, 'COUNT(*)')} FROM v"
            case "function":
                body = self._filled("<any>", 1).replace("a", "k")
                return f"CREATE FUNCTION half(k {one('', *NAMED['type'])}) AS {body}; SELECT half(a), half(x) FROM s"
            case "template":
                rows = ", ".join(f"({self._number()}, {one('NULL', '0.5', 'TRUE')})" for _ in range(2))
                given = one(f"VALUES {rows}", "USING TABLE w", "USING TABLE r")
                text = self.query(1).replace("1", "$a").replace("2", "$lim")
                return f"CREATE TEMPLATE t (a BIGINT, lim DOUBLE) AS {text}; CREATE QUERIES g FROM TEMPLATE t {given}"
            case _:
                to = one("parquet (path => 'x')", "postgres (dsn => 'x')", "kafka ()", "nope (a => 1)", "csv")
                return f"CREATE QUERY q AS {self.query(1)}; CREATE SINK o FOR {one('q', 'z')} TO {to}"

    def query(self, depth: int) -> str:
        """A SELECT with what may stand around it."""
        outer, self._known = self._known, ()
        sources = ", ".join(self.source(depth) for _ in range(self._chance.choice((1,) * 9 + (2,))))
        items = ", ".join(self.item(depth) for _ in range(self._chance.choice((1, 1, 2, 3))))
        form = self._one("{}", "{}", "{}", "ISTREAM({})", "RSTREAM({})", "DSTREAM({})", "DISTINCT {}")
        stream = form.replace("{}", items)
        text = f"SELECT {stream} FROM {sources}"
        for likely, clause in (
            (0.4, "WHERE <boolean>"), (0.25, "GROUP BY <grouping>"), (0.1, "HAVING <boolean>"),
            (0.08, "ORDER BY <any> LIMIT <n>"),
            (0.03, "SAMPLE BY <n>"), (0.03, "LATEST ON ts PARTITION BY <column>"), (0.05, "<setop> <query>"),
        ):  # fmt: skip
            if self._chance.random() < likely:
                text += " " + self._filled(clause, min(1, depth))
        self._known = outer
        return text

    def source(self, depth: int) -> str:
        """Something to select from."""
        pick = self._chance.random()
        if depth and pick < 0.03:
            self._known += (("s", "s"),)
            return f"s{self._window('s')} UNPIVOT (v FOR k IN ({self._one('a', 'a, ts', 'x, a', 'n, x')}))"
        if depth and pick < 0.12:
            text = f"({self.query(depth - 1)}) q{self._window('q') if pick < 0.05 else ''}"
            self._known += (("q", self._one("s", "u")),)
            return text
        if depth and pick < 0.35:
            kind = self._one("JOIN", "JOIN", "LEFT JOIN", "FULL JOIN", "CROSS JOIN", "ASOF JOIN", "NATURAL JOIN")
            other = self._one("u", "u", "r", "c", "w")
            self._known += (("s", "s"), (other, other))
            how = self._filled(self._one("", "ON <boolean>", "USING (a)", *(3 * (f"ON s.a = {other}.a",))), 1)
            return f"s{self._window('s')} {kind} {other}{self._window(other)} {how}"
        name = self._one("s", "s", "s", "u", "r", "w")
        if pick < 0.42 and name in ("s", "u"):
            self._known += ((name, name),)
            return f"{self._one('TUMBLE', 'HOP', 'CUMULATE')}({name}, ts, {self._number()}, {self._number()})"
        alias = self._one("", "", "", " AS s", " q")
        self._known += ((alias[-1:] or name, name),)
        return f"{name}{self._window(name)}{alias}"

    def _column(self, kind: str) -> str:
        if not self._known:
            return "a"
        name, of = self._chance.choice(self._known)
        column = self._one(*COLUMNS.get(kind, COLUMNS["any"])[of])
        return column if len(self._known) == 1 else f"{name}.{column}"

    def item(self, depth: int) -> str:
        """Something to select."""
        depth = self._chance.randint(0, depth)
        rule = self._one("*", "<column>", "<any> AS <alias>", "<number> AS <alias>", "<any>", "<number>", "s.*")
        return self._filled(rule, depth)

    def _value(self, kind: str, depth: int) -> str:
        if self._chance.random() < 1 / 12:
            kind = self._one(*VALUES)
        rules = VALUES[kind]
        if depth <= 0:
            rules = tuple(r for r in rules if "<" not in r.replace("<n>", "").replace("<column>", "")) or ("<n>",)
        return self._filled(self._one(*rules).replace("<column>", self._column(kind)), depth - 1)

    def _filled(self, rule: str, depth: int) -> str:
        def fill(found: re.Match[str]) -> str:
            kind = found[1]
            if kind in VALUES:
                return self._value(kind, depth)
            if kind in NAMED:
                return self._one(*NAMED[kind])
            if kind == "column":
                return self._column("any")
            if kind == "query":
                return self.query(0)
            if kind == "grouping":
                return self._filled(self._one("ALL", "<column>", "ROLLUP (<column>, <any>)", "<any>"), depth)
            if kind == "setop":
                return self._one("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
            return self._one("a", "c", "d")

        return _HOLE.sub(fill, rule)

    def _window(self, name: str) -> str:
        if name in ("r", "c", "w") and self._chance.random() < 0.95:
            return ""
        return (" " + self._filled(self._one(*WINDOWS), 0)).rstrip()

    def _number(self) -> str:
        return self._one(*NAMED["n"])

    def _clauses(self) -> str:
        return self._one(
            "", "WITHIN 5", "RETAIN 1", "IDLE AFTER 5 SECONDS", "TIMESTAMP BY k", "AHEAD 1 HOUR", "FROM nope (a => 1)",
            "ON ERROR QUARANTINE",
        )  # fmt: skip

    def _one(self, *choices: str) -> str:
        return self._chance.choice(choices)


def mutated(text: str, chance: random.Random) -> str:
    """A text with a few tokens changed."""
    found = tokens(text)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not found:
            break
        at, other = chance.randrange(len(found)), chance.randrange(len(found))
        match chance.randrange(10):
            case 0:
                del found[at : at + chance.randint(1, 3)]
            case 1:
                found[at:at] = found[other : other + chance.randint(1, 8)]
            case 2:
                found[at : at + 1] = [" ", chance.choice(WORDS), " "]
            case 3:
                found[at:at] = [" ", chance.choice(WORDS), " "]
            case 4:
                found[at], found[other] = found[other], found[at]
            case 5:
                found[at:at] = tokens(chance.choice(CORPUS))[other : other + 12]
            case 6:
                found[at:at] = chance.choice(ODD)
            case _:
                _exchange(found, chance)
    return "".join(found)


def _exchange(found: list[str], chance: random.Random) -> None:
    """Put another token of its kind in the place of one."""
    places = [(at, line) for at, token in enumerate(found) for line in ALIKE if token in line]
    if places:
        at, line = chance.choice(places)
        found[at] = chance.choice(line)
