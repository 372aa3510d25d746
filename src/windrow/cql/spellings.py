"""Functions that other systems have under names and patterns of their own, as DuckDB's.

    DATE_FORMAT(t, 'yyyy-MM-dd')     Flink, Spark     strftime(t, '%Y-%m-%d')
    FORMAT_DATE('%Y-%m-%d', t)       Feldera          strftime(t, '%Y-%m-%d'); also FORMAT_TIMESTAMP
    TO_CHAR(t, 'YYYY-MM-DD')         PostgreSQL       strftime(t, '%Y-%m-%d')
    SPLIT_INDEX(s, '/', 3)           Flink            string_split(s, '/')[3 + 1]
    (regexp_match(s, p))[2]          PostgreSQL       CASE WHEN regexp_matches(s, p) THEN regexp_extract(s, p, 2) END
    TIMESTAMPDIFF(MINUTE, t, u)      Flink, Spark     date_sub('minute', t, u); TIMESTAMPADD, DATEADD: u + to_minutes(n)
    NVL(a, b), RLIKE(s, p), SIZE(l)  Spark            and others that are one expression: see `synonyms`
    TIMESTAMP_TRUNC(t, HOUR)         BigQuery         date_trunc('hour', t); TIMESTAMP_DIFF(a, b, MINUTE)
    multiIf(c, a, b), DECODE(v, a, b)     ClickHouse, Oracle     CASE
    QUANTILE(a, [0.5, 0.9])          DuckDB           [QUANTILE(a, 0.5), QUANTILE(a, 0.9)]
    a = ANY(l)                       PostgreSQL       whether the list l has a: null where only a null could be it
    a IN l                           DuckDB           list_contains(l, a)
    SELECT DISTINCT ON (k) ...       PostgreSQL       QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t) = 1
        ORDER BY k, t
    PERCENTILE_CONT(0.9)             SQL              QUANTILE_CONT(a, 0.9); also PERCENTILE_DISC, and MODE() as
        WITHIN GROUP (ORDER BY a)                     MODE(a ORDER BY a)

A pattern is a literal, and whatever in it is not known is refused, so that no text means something else here than where
it comes from. A function that a user has registered under such a name is left alone.
"""

from __future__ import annotations

import re

from sqlglot import exp

from windrow.catalog import Catalog, SqlFunctionDef
from windrow.cql.scope import span_of
from windrow.cql.source import ScriptText
from windrow.cql.sql_functions import in_place
from windrow.cql.synonyms import OWN, RENAMED, SYNONYMS
from windrow.cql.walks import find_all, nodes
from windrow.errors import BindingError, UnsupportedError

_JAVA = {
    "yyyy": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m", "dd": "%d", "d": "%-d", "HH": "%H",
    "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "ss": "%S", "SSSSSS": "%f", "SSS": "%g", "a": "%p", "EEEE": "%A",
    "EEE": "%a", "E": "%a",
}  # fmt: skip
_POSTGRES = {
    "YYYY": "%Y", "yyyy": "%Y", "YY": "%y", "MM": "%m", "mm": "%m", "DD": "%d", "dd": "%d", "HH24": "%H",
    "hh24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "mi": "%M", "SS": "%S", "ss": "%S", "MS": "%g", "US": "%f",
    "AM": "%p", "PM": "%p", "Day": "%A", "Dy": "%a", "Month": "%B", "Mon": "%b", "DDD": "%j",
}  # fmt: skip
_ARITIES = {name: parameters.count(",") + 1 for name, parameters in SYNONYMS if name not in OWN}
_SYNONYMS = {
    (name, parameters.count(",") + 1): SqlFunctionDef(name, dict.fromkeys(parameters.split(", ")), body, "", ())
    for (name, parameters), body in SYNONYMS.items()
}
_HAS = SqlFunctionDef(
    "any", dict.fromkeys(("a", "b")),
    "coalesce(a IS NOT NULL AND list_contains(b, a), FALSE) OR "
    "CASE WHEN (a IS NULL AND len(b) > 0) OR list_count(b) < len(b) THEN NULL ELSE FALSE END", "",
)  # fmt: skip
_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year")
_UNIT_FIRST = ("timestampdiff", "timestampadd", "dateadd")
"""Functions whose first argument is a unit, without quotes."""
_UNIT_LAST = {
    **dict.fromkeys(("timestamp_trunc", "datetime_trunc", "date_trunc"), ("date_trunc", 2)),
    **dict.fromkeys(("timestamp_diff", "datetime_diff", "date_diff"), ("date_sub", 3)),
}
"""Functions of BigQuery whose last argument is a unit, without quotes: DuckDB's name, and how many arguments."""
_CHOICES = ("multiif", "decode")
"""Functions that are a CASE: of conditions and values, or of a value and pairs; the last may stand alone."""
NAMES = (
    *("date_format", "format_date", "format_timestamp", "to_char", "timestamptostring", "split_index", "named_struct"),
    *(*_UNIT_FIRST, *_UNIT_LAST, *_CHOICES, "datepart", "json_agg", "jsonb_agg"),
    *(name for name, _ in RENAMED),
    *(name for name, _ in _SYNONYMS),
)
"""What is known besides DuckDB's functions."""
_STRFTIME = "strftime"
_LAST = {"date_format": _JAVA, "timestamptostring": _JAVA, "to_char": _POSTGRES, "to_varchar": _POSTGRES}
"""Functions whose last argument is a pattern."""
_FIRST = ("format_date", "format_timestamp")
"""Functions whose first argument is a pattern: of % and letters, or Java's."""
_PERCENTILES = {
    "percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc", "approx_percentile": "quantile_disc",
}  # fmt: skip
"""Of a column by its order; an approximation is met by what is exact, whatever error may be given beside it."""
_QUANTILES = ("quantile", "quantile_cont", "quantile_disc", "approx_quantile", "percentile", "approx_percentile")
_WITHIN = ("mode", *_PERCENTILES)
"""Aggregates of the column that their WITHIN GROUP is ordered by."""


def respell(tree: exp.Expr, catalog: Catalog, source: ScriptText) -> None:
    """Put DuckDB's functions in the place of others, in the tree itself."""
    found = nodes(tree)
    there = {type(node) for node in found}
    if there.isdisjoint((exp.Anonymous, exp.Any, exp.In)):
        return
    tests = [node for node in found if isinstance(node.args.get("expression"), exp.Any) or node.args.get("field")]
    for test in tests:
        if isinstance(test, exp.EQ | exp.In):
            _has(test, source)
    for ordered in find_all(tree, exp.WithinGroup) if exp.WithinGroup in there else ():
        if isinstance(ordered.this, exp.Anonymous) and ordered.this.name.lower() in _WITHIN:
            ordered.replace(_within_group(ordered.this, ordered.expression.expressions, source))
    if tests or exp.WithinGroup in there:
        found = nodes(tree)
    for call in reversed([node for node in found if isinstance(node, exp.Anonymous)]):  # what is inside others first
        name, arguments = call.name.lower(), call.expressions
        if name in catalog.functions or name in catalog.macros:
            continue
        if name in _QUANTILES and len(arguments) == 2 and isinstance(arguments[1], exp.Array):
            _quantiles(call, arguments, source)
            continue
        if (name, len(arguments)) in _SYNONYMS:
            call.replace(in_place(call, _SYNONYMS[name, len(arguments)], source))
        elif (name, len(arguments)) in RENAMED:
            known, order = RENAMED[name, len(arguments)]
            _rename(call, known, [arguments[i] for i in order])
        elif name in ("json_agg", "jsonb_agg") and len(arguments) == 1:
            listed = exp.Anonymous(this="list", expressions=arguments)
            listed.meta.update(call.meta)
            _rename(call, "to_json", [listed])
        elif name in _ARITIES and not (name in _LAST and len(arguments) == 2):
            wanted = _ARITIES[name]
            raise BindingError(
                f"{name.upper()} takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}",
                span=span_of(call, source),
            )
        elif name in _UNIT_FIRST and len(arguments) == 3:
            _with_unit(call, arguments, source)
        elif name in _UNIT_LAST and len(arguments) == _UNIT_LAST[name][1] and isinstance(arguments[-1], exp.Column):
            _with_last_unit(call, arguments)
        elif name == "datepart" and len(arguments) == 2 and isinstance(arguments[0], exp.Column):
            _rename(call, "date_part", [exp.Literal.string(arguments[0].name.lower()), arguments[1]])
        elif name in _CHOICES and len(arguments) > 2:
            _choices(call, arguments)
        elif name == "named_struct" and arguments and len(arguments) % 2 == 0:
            _named_struct(call, arguments)
        elif name in _LAST and len(arguments) == 2:
            pattern = _pattern(arguments[1], call, _LAST[name], source)
            _rename(call, _STRFTIME, [arguments[0], pattern])
        elif name in _FIRST and len(arguments) == 2:
            letters = {} if isinstance(arguments[0], exp.Literal) and "%" in arguments[0].name else _JAVA
            pattern = arguments[0] if not letters else _pattern(arguments[0], call, letters, source)
            _rename(call, _STRFTIME, [arguments[1], pattern])
        elif name == "split_index" and len(arguments) == 3:
            _split_index(call, arguments)
        elif name == "regexp_match" and len(arguments) == 2:
            _regexp_match(call, arguments)


def _has(test: exp.Expr, source: ScriptText) -> None:
    """A test of the elements of a list, as an expression."""
    anywhere = isinstance(test, exp.EQ) and isinstance(test.expression, exp.Any)
    right = test.expression.this if anywhere else test.args.get("field")
    if right is None or right.find(exp.Query) is not None:
        return
    call = exp.Anonymous(this="list_contains", expressions=[right.unnest(), test.this])
    call.meta.update(test.this.meta)
    if anywhere:
        call.set("expressions", call.expressions[::-1])
    test.replace(exp.Paren(this=in_place(call, _HAS, source)) if anywhere else call)


def _within_group(call: exp.Anonymous, order: list[exp.Ordered], source: ScriptText) -> exp.Anonymous:
    """An aggregate with the column that its group is ordered by as its argument."""
    name, given = call.name.lower(), call.expressions
    example = "MODE()" if name == "mode" else f"{name.upper()}(0.9)"
    if name == "approx_percentile":
        given = given[:1] if len(given) == 2 and isinstance(given[1], exp.Literal) else given
    if len(order) != 1 or len(given) != (name != "mode"):
        raise BindingError(
            f"{name.upper()} is of one column",
            hint=f"write {example} WITHIN GROUP (ORDER BY a)",
            span=span_of(call, source),
        )
    if name == "mode":
        _rename(call, name, [exp.Order(this=order[0].this.copy(), expressions=order)])
        return call
    if order[0].args.get("desc"):
        raise UnsupportedError(
            f"{name.upper()} of values in descending order",
            hint=f"write {name.upper()}(1 - p) WITHIN GROUP (ORDER BY a), with the number that 1 - p is",
            span=span_of(call, source),
        )
    _rename(call, _PERCENTILES[name], [order[0].this, *given])
    return call


def _quantiles(call: exp.Anonymous, arguments: list[exp.Expr], source: ScriptText) -> None:
    """Several quantiles of one column, as the list of each."""
    value, each = arguments
    made = []
    for fraction in each.expressions:
        one = exp.Anonymous(this=call.name, expressions=[value.copy(), fraction])
        one.meta.update(call.meta)
        synonym = _SYNONYMS.get((call.name.lower(), 2))
        made.append(one if synonym is None else in_place(one, synonym, source))
    call.replace(exp.Array(expressions=made, bracket_notation=True))


def first_of_each(tree: exp.Expr) -> None:
    """Put a rank in the place of every DISTINCT ON, in the tree itself; the ORDER BY that says which row goes."""
    for select in tree.find_all(exp.Select):
        distinct = select.args.get("distinct")
        keys = distinct.args.get("on") if distinct is not None else None
        if keys is None:
            continue
        order = select.args.get("order")
        number = exp.Window(
            this=exp.Anonymous(this="row_number"),
            partition_by=list(keys.expressions) if isinstance(keys, exp.Tuple) else [keys],
            order=None if order is None else order.copy(),
        )
        first = exp.EQ(this=number, expression=exp.Literal.number(1))
        before = select.args.get("qualify")
        select.set("distinct", None)
        both = first if before is None else exp.And(this=before.this, expression=first)
        select.set("qualify", exp.Qualify(this=both))
        if select.args.get("limit") is None and select.args.get("fetch") is None:
            select.set("order", None)


def _with_unit(call: exp.Anonymous, arguments: list[exp.Expr], source: ScriptText) -> None:
    """The whole units between two times, or a time and so many units."""
    unit, second, third = arguments
    word = unit.name.lower().removeprefix("sql_tsi_").removesuffix("s")
    if not isinstance(unit, exp.Column | exp.Var) or word not in _UNITS:
        raise BindingError(
            f"{call.name.upper()} with the unit {unit.name}",
            hint=f"units are {', '.join(_UNITS)}, without quotes",
            span=span_of(call, source),
        )
    if call.name.lower() == "timestampdiff":
        _rename(call, "date_sub", [exp.Literal.string(word), second, third])
        return
    interval = exp.Anonymous(this=f"to_{word}s", expressions=[second])
    interval.meta.update(call.meta)
    call.replace(exp.Paren(this=exp.Add(this=exp.Paren(this=third), expression=interval)))


def _with_last_unit(call: exp.Anonymous, arguments: list[exp.Expr]) -> None:
    """A time cut to a unit, or the whole units from the second time to the first."""
    *times, unit = arguments
    word = unit.name.lower()
    if word in _UNITS or word == "quarter":
        name = _UNIT_LAST[call.name.lower()][0]
        _rename(call, name, [exp.Literal.string(word), *reversed(times)])


def _choices(call: exp.Anonymous, arguments: list[exp.Expr]) -> None:
    """A CASE; DECODE takes nulls for equal."""
    value, pairs = (None, arguments) if call.name.lower() == "multiif" else (arguments[0], arguments[1:])
    default = pairs[-1] if len(pairs) % 2 else None
    ifs = [
        exp.If(this=when if value is None else exp.NullSafeEQ(this=value.copy(), expression=when), true=then)
        for when, then in zip(pairs[::2], pairs[1::2], strict=False)
    ]
    made = exp.Case(ifs=ifs, default=default)
    made.meta.update(call.meta)
    call.replace(made)


def _named_struct(call: exp.Anonymous, arguments: list[exp.Expr]) -> None:
    """A struct of names in quotes and values."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    if all(isinstance(name, exp.Literal) and name.is_string for name, _ in pairs):
        fields = [exp.PropertyEQ(this=exp.to_identifier(n.name, quoted=True), expression=v) for n, v in pairs]
        call.replace(exp.Struct(expressions=fields))


def _rename(call: exp.Anonymous, name: str, arguments: list[exp.Expr]) -> None:
    call.set("this", name)
    call.set("expressions", arguments)


def _pattern(argument: exp.Expr, call: exp.Anonymous, letters: dict[str, str], source: ScriptText) -> exp.Literal:
    if not isinstance(argument, exp.Literal) or not argument.is_string:
        raise BindingError(
            f"the pattern of {call.name} is not a text in quotes",
            hint="write strftime(t, p), whose pattern may be computed",
            span=span_of(call, source),
        )
    if letters is _POSTGRES and re.fullmatch(r"[FM90.,$DGSPLR -]*[90][FM90.,$DGSPLR -]*", argument.name):
        raise BindingError(
            f"{call.name} of a number",
            hint="write format('{:,.2f}', a) or printf('%05d', a), or CAST(a AS VARCHAR)",
            span=span_of(call, source),
        )
    made = exp.Literal.string(_translated(argument.name, call, letters, source))
    made.meta.update(argument.meta)
    return made


def _translated(pattern: str, call: exp.Anonymous, letters: dict[str, str], source: ScriptText) -> str:
    """A pattern in the letters of strftime."""
    words = "|".join(sorted(letters, key=len, reverse=True))
    found, at = [], 0
    token = re.compile(rf"'([^']*)'|\"([^\"]*)\"|({words})(?![A-Za-z0-9])|({words})|([^A-Za-z'\"]+)")
    while at < len(pattern):
        part = token.match(pattern, at)
        if part is None or (letters is _JAVA and (part[3] or part[4]) and _repeats(pattern, part.end())):
            raise BindingError(
                f"{call.name} with the pattern '{pattern}'",
                detail=f"what '{pattern[at:]}' begins with is not known",
                hint=f"write strftime(t, ...) with % and letters, or use {', '.join(list(letters)[:9])}",
                span=span_of(call, source),
            )
        known = part[3] or part[4]
        found.append(letters[known] if known else (part[1] or part[2] or part[5] or "'").replace("%", "%%"))
        at = part.end()
    return "".join(found)


def _repeats(pattern: str, at: int) -> bool:
    """Whether a letter is written more often than any pattern has it."""
    return at < len(pattern) and pattern[at] == pattern[at - 1]


def _split_index(call: exp.Anonymous, arguments: list[exp.Expr]) -> None:
    text, separator, place = arguments
    parts = exp.Anonymous(this="string_split", expressions=[text, separator])
    parts.meta.update(call.meta)
    _rename(call, "list_extract", [parts, exp.Paren(this=exp.Add(this=place, expression=exp.Literal.number(1)))])


def _regexp_match(call: exp.Anonymous, arguments: list[exp.Expr]) -> None:
    """The group that is taken of the first match; null where there is none. Other uses stay unknown."""
    inner: exp.Expr = call
    while isinstance(inner.parent, exp.Paren):
        inner = inner.parent
    bracket = inner.parent
    if not isinstance(bracket, exp.Bracket) or bracket.this is not inner or len(bracket.expressions) != 1:
        return
    text, pattern = arguments
    group = bracket.expressions[0]
    test = exp.Anonymous(this="regexp_matches", expressions=[text.copy(), pattern.copy()])
    value = exp.Anonymous(this="regexp_extract", expressions=[text, pattern, group])
    made = exp.Case(ifs=[exp.If(this=test, true=value)])
    for node in (test, value, made):
        node.meta.update(call.meta)
    bracket.replace(made)
