"""From CQL to ordinary SQL over the window contents at one instant.

Every stream in a FROM clause becomes `(SELECT its columns FROM w WHERE it is in the window now) AS alias`, where `w` is
a DuckDB table of the stream's rows with their lifetimes and "now" is the hole `NOW`. Stream operators are cut out and
remembered. What remains is plain SQL: DuckDB says what it means.

A subquery that is a relation stays in place as text. One that is a stream is answered first, and its rows become one
more table with lifetimes (`OracleContext.window_on`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from windrow.testing.aggregates import calls_aggregate
from windrow.testing.analytic import in_order, with_ties, with_windows
from windrow.testing.asof import asof_sql
from windrow.testing.blocks import BOUNDS, FromItem, OracleBlock, OracleContext, quote
from windrow.testing.expressions import rewrite_expression
from windrow.testing.from_clause import conjuncts, read_from, source_sql, validity
from windrow.testing.lifetimes import OracleWindow, read_window
from windrow.testing.script import is_compared, with_names
from windrow.testing.summaries import summarises
from windrow.testing.tokens import Token, Tokens, closing, is_at, render, split, tokenize, top_level

OPERATORS = frozenset({"ISTREAM", "DSTREAM", "RSTREAM", "ISTREAM_RESTORE", "RSTREAM_RESTORE"})
SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT"})
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH")


def rewrite_query(
    tokens: Tokens, context: OracleContext, scope: frozenset[str] = frozenset()
) -> list[tuple[str, OracleBlock]]:
    """The SELECT blocks of a query, each with the set operation before it ('' for the first)."""
    tokens, wrapper = _unwrap(tokens)
    if is_at(tokens, 0, "WITH"):
        tokens = with_names(tokens)
    cuts = [i for i in top_level(tokens) if tokens[i].upper in SET_OPERATIONS]
    if cuts:  # ORDER BY and LIMIT at the end are those of the whole
        end = next((i for i in top_level(tokens) if tokens[i].upper in ("ORDER", "LIMIT", "FETCH")), None)
        if end is not None:
            whole = combine(rewrite_query(tokens[:end], context, scope))
            clauses = _clauses([*tokenize("SELECT"), *tokens[end:]])
            whole.sql = f"SELECT * FROM ({whole.sql}) AS __whole"
            whole.sql = _first_rows(whole.sql, render(clauses["ORDER"]), clauses, context)
            return [("", whole)]
    found: list[tuple[str, OracleBlock]] = []
    for a, b in zip([None, *cuts], [*cuts, len(tokens)], strict=True):
        start, operation = 0, ""
        if a is not None:
            start, operation = a + 1, tokens[a].upper
            if tokens[start].upper in ("ALL", "DISTINCT"):
                operation, start = f"{operation} {tokens[start].upper}", start + 1
        part = tokens[start:b]
        if is_at(part, 0, "("):
            found.append((operation, combine(rewrite_query(part[1 : closing(part, 0)], context, scope))))
        else:
            found.append((operation, _select(part, context, scope)))
    if wrapper:
        whole = combine(found)
        whole.op = wrapper
        return [("", whole)]
    return found


def combine(parts: Sequence[tuple[str, OracleBlock]]) -> OracleBlock:
    """Blocks without operators as one block."""
    if len(parts) == 1:
        return parts[0][1]
    # INTERSECT binds tighter than the others; that is left to DuckDB by keeping the text flat.
    whole = OracleBlock(" ".join(f"{operation} ({block.sql})" for operation, block in parts))
    for _, block in parts:
        whole.absorb(block)
        if block.op is not None or block.internal:
            raise ValueError("stream operators inside a set operation")
    return whole


def _unwrap(tokens: Tokens) -> tuple[Tokens, str | None]:
    """Strip brackets around a whole query and an operator before them: `ISTREAM (SELECT ...)`."""
    wrapper = None
    while tokens:
        op, i = _operator(tokens, 0)
        if not (is_at(tokens, i, "(") and closing(tokens, i) == len(tokens) - 1):
            break
        wrapper, tokens = op or wrapper, tokens[i + 1 : -1]
    return tokens, wrapper


def _operator(tokens: Tokens, i: int) -> tuple[str | None, int]:
    """The stream operator at `i`, and the index after it."""
    if i >= len(tokens) or tokens[i].upper not in OPERATORS:
        return None, i
    if is_at(tokens, i + 1, "-", "RESTORE"):
        return tokens[i].upper + "_RESTORE", i + 3
    return tokens[i].upper, i + 1


# One SELECT --------------------------------------------------------------------------------------------------------


def _select(tokens: Tokens, context: OracleContext, scope: frozenset[str]) -> OracleBlock:
    clauses = _clauses(_select_first(tokens))
    for clause in ("SELECT", "QUALIFY", "ORDER"):
        clauses[clause] = with_windows(clauses[clause], clauses["WINDOW"])
    items, distinct, op = _items(clauses["SELECT"])
    keys: Tokens = []
    if distinct and is_at(items, 0, "ON", "("):  # of each of these the first row
        end = closing(items, 1) + 1
        keys, items, distinct = items[:end], items[end:], False
    if any(t.upper == "WSTREAM" for t in items):
        return _wstream(items, clauses, context, scope)
    block = OracleBlock("", op=op)
    parts, conditions = read_from(clauses["FROM"], context, scope)
    sources = [p for p in parts if isinstance(p, FromItem)]
    streams = [s for s in sources if s.stream]
    for source in sources:
        source.sliced = source.stream and summarises([*items, *clauses["HAVING"]])
        if source.block is not None:
            block.absorb(source.block)
        elif source.stream:
            block.join_period(source.window.period)
            block.join_size(source.window.range)
            block.per_window |= source.window.aligned or source.window.gap is not None
    windowed = [s for s in streams if s.windowed]
    flags = [s.window.internal for s in windowed]
    mixed = any(flags) and not all(flags) and block.period is None
    block.internal = bool(flags) and all(flags) and block.period is None
    names = scope | {c.lower() for s in sources for c in s.columns} | {s.alias.lower() for s in sources}
    names |= {b for b in BOUNDS if any(s.window.aligned or s.window.gap is not None for s in sources)}
    names |= {items[i + 1].name or "" for i in range(len(items) - 1) if items[i].upper == "AS"}
    where = list(clauses["WHERE"])
    valid = validity(sources, where, conditions)

    def inside(part: Tokens) -> str:
        """A subquery of an expression: the block depends on what it depends on."""
        found = rewrite_query(part, context, frozenset(names))
        for _, branch in found:
            branch.op = None  # in EXISTS and IN an operator says nothing
        inner = combine(found)
        block.absorb(inner)
        return inner.sql

    grouped = bool(clauses["GROUP"] or clauses["HAVING"]) or calls_aggregate([*items, *clauses["QUALIFY"]])
    ties = [f"{quote(s.alias)}.{quote(c)}" for s in sources for c in s.columns]
    times = [f"{quote(s.alias)}.{quote(s.time)}" for s in sources if s.stream and s.time is not None]
    settling = list(dict.fromkeys([*times, *ties]))
    if grouped:
        ties = [render(key) for key in split(clauses["GROUP"], ",") if key]

    def expression(part: Tokens) -> str:
        part = in_order(with_ties(part, ties), settling)
        return rewrite_expression([_bound(part, i, names, block, context) for i in range(len(part))], names, inside)

    text: list[str] = []
    asof: FromItem | None = None
    for part in parts:
        if isinstance(part, FromItem):
            asof = part if "ASOF" in [t.upper() for t in text[-3:]] else None
            text.append(source_sql(part, context, block, lifetimes=mixed, numbered=asof is not None))
        elif isinstance(part, int) and asof is not None:
            on, rows = expression(conditions[part]), text[-2]
            text[-2:] = [asof_sql(asof, rows, on, conjuncts(conditions[part]), sources)]
            text = [t for t in text if t.upper() != "ASOF"]
        elif isinstance(part, int):  # the ON condition of this number
            text.append(_and([f"({expression(conditions[part])})", *valid.get(part, [])]))
        else:
            text.append(part)
    selected = expression(items)
    predicates = [f"({expression(where)})"] if where else []
    predicates += valid.get(-1, [])
    if mixed:
        appears = _extreme("greatest", [f'"{s.alias}".__from_{s.table}' for s in streams])
        in_window = _extreme("least", [f'"{s.alias}".__to_{s.table}' for s in streams])
        outside = [f'"{s.alias}".__to_{s.table}' for s in streams if not s.window.internal]
        predicates.append(f"{appears} < {in_window}")
        selected += f", {appears} AS __from, {_extreme('least', outside)} AS __to"
    chosen = f"DISTINCT {expression(keys)} " if keys else "DISTINCT " if distinct else ""
    sql = f"SELECT {chosen}{selected}" + (f" FROM {' '.join(text)}" if text else "")
    sql += f" WHERE {_and(predicates)}" if predicates else ""
    having = [f"({expression(clauses['HAVING'])})"] if clauses["HAVING"] else []
    group = [expression(clauses["GROUP"])] if clauses["GROUP"] else []
    if group or ((having or calls_aggregate(items)) and not scope):  # as a value it answers for an empty window, too
        group += _window_keys(sources, clauses["GROUP"])
        having += ["count(*) > 0"] if block.per_window else []
    sql += f" GROUP BY {', '.join(group)}" if group else ""
    sql += f" HAVING {_and(having)}" if having else ""
    sql += f" QUALIFY {expression(clauses['QUALIFY'])}" if clauses["QUALIFY"] else ""
    if keys:
        sql += f" ORDER BY {', '.join([*([expression(clauses['ORDER'])] if clauses['ORDER'] else []), *ties])}"
        sql = f"SELECT * FROM ({sql}) AS __chosen"
    if clauses["LIMIT"] or clauses["FETCH"]:
        sql = _first_rows(sql, expression(clauses["ORDER"]), clauses, context)
    if mixed and (distinct or clauses["GROUP"] or len(block.instants)):
        raise ValueError("INTERNAL and other windows mix only in select-project-join blocks")
    if mixed and block.period is not None:
        raise ValueError("INTERNAL beside a SLIDE in a subquery")
    block.internal &= block.period is None  # a subquery of an expression may have made it periodic
    block.sql = context.mixed(sql, block) if mixed else sql
    block.selects = not (distinct or clauses["GROUP"] or clauses["HAVING"] or calls_aggregate(items))
    return block


def _bound(tokens: Tokens, i: int, names: Set[str], block: OracleBlock, context: OracleContext) -> Token:
    """window_start and window_end of a periodic query, where no column has these names."""
    token = tokens[i]
    if token.name not in BOUNDS or token.name in names or (i and tokens[i - 1].upper in (".", "AS")):
        return token
    if block.size is None or block.period is None:
        raise ValueError(f"{token.name} needs a RANGE and a SLIDE")
    return Token("sql", context.instant(block.size if token.name == "window_start" else 0))


def _window_keys(sources: Sequence[FromItem], group: Tokens) -> list[str]:
    """What tells windows apart: a query over TUMBLE, HOP or SESSION is answered per window, grouped by it or not."""
    keys = []
    for source in sources:
        named = any(t.name in BOUNDS for t in group)
        if source.window.aligned or (source.window.gap is not None and not named):
            keys += [f"{quote(source.alias)}.{quote(c)}" for c in (*BOUNDS, *source.window.partition)]
    return keys


def _first_rows(sql: str, order: str, clauses: dict[str, Tokens], context: OracleContext) -> str:
    """ORDER BY and LIMIT; rows that tie are ordered by the select list, ascending, nulls last.

    FETCH FIRST n ROWS ONLY is LIMIT n; WITH TIES counts ranks.
    """
    words = [t for t in clauses["FETCH"] if t.upper not in ("FIRST", "NEXT", "ROW", "ROWS", "ONLY")]
    ties = is_at(words[-2:], 0, "WITH", "TIES")
    limit = clauses["LIMIT"] or (words[:-2] if ties else words) or tokenize("1")
    offset = [t for t in clauses["OFFSET"] if t.upper not in ("ROW", "ROWS")] or tokenize("0")
    if ties:
        over = f"rank() OVER (ORDER BY {order})"
        return f"{sql} QUALIFY {over} > {render(offset)} AND {over} <= {render(offset)} + {render(limit)}"
    count = len(context.describe(sql)[0])
    places = [f"{i + 1} ASC NULLS LAST" for i in range(count)]
    by = ", ".join(([order] if order else []) + places)
    return f"{sql} ORDER BY {by} LIMIT {render(limit)} OFFSET {render(offset)}"


def _and(predicates: Sequence[str]) -> str:
    return " AND ".join(predicates)


def _extreme(function: str, values: Sequence[str]) -> str:
    return f"{function}({', '.join(values)})"


def _clauses(tokens: Tokens) -> dict[str, Tokens]:
    """Tokens of each clause of one SELECT, without the keywords."""
    found: dict[str, Tokens] = {"SELECT": [], **{c: [] for c in _CLAUSES}}
    if not is_at(tokens, 0, "SELECT"):
        raise ValueError(f"not a SELECT: {render(tokens)}")
    starts = [("SELECT", 1, 0)]
    for i in top_level(tokens):
        if _opens(tokens, i):
            starts.append((tokens[i].upper, i + 1 + (tokens[i].upper in ("GROUP", "ORDER")), i))
    for (clause, start, _), (_, _, end) in zip(starts, [*starts[1:], ("", 0, len(tokens))], strict=True):
        found[clause] = tokens[start:end]
    return found


def _opens(tokens: Tokens, i: int) -> bool:
    """Whether a word opens a clause."""
    word = tokens[i].upper
    if word in ("GROUP", "ORDER"):
        return is_at(tokens, i + 1, "BY")
    if word == "WINDOW":
        return is_at(tokens, i + 2, "AS", "(")
    return word in _CLAUSES and not is_compared(tokens, i)


def _select_first(tokens: Tokens) -> Tokens:
    """FROM s SELECT a WHERE b as SELECT a FROM s WHERE b; FROM s alone selects all."""
    if not is_at(tokens, 0, "FROM"):
        return tokens
    places = [i for i in top_level(tokens, 1) if tokens[i].upper == "SELECT" or _opens(tokens, i)]
    begin = next((i for i in places if tokens[i].upper == "SELECT"), None)
    if begin is None:
        return [*tokenize("SELECT *"), *tokens]
    end = next((i for i in places if i > begin), len(tokens))
    return [*tokens[begin:end], *tokens[:begin], *tokens[end:]]


def _items(tokens: Tokens) -> tuple[Tokens, bool, str | None]:
    """The SELECT list without its stream operator, whether it is DISTINCT, and the operator."""
    distinct = is_at(tokens, 0, "DISTINCT")
    tokens = tokens[distinct:]
    op, i = _operator(tokens, 0)
    if op is None:
        return tokens, distinct, None
    tokens = tokens[i:]
    if is_at(tokens, 0, "(") and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    if is_at(tokens, 0, "DISTINCT"):
        return tokens[1:], True, op
    return tokens, distinct, op


def _wstream(items: Tokens, clauses: dict[str, Tokens], context: OracleContext, scope: frozenset[str]) -> OracleBlock:
    """`outer(WSTREAM(inner)[window])`: the outer SELECT list over the windowed output of the inner block."""
    start = next(i for i, t in enumerate(items) if t.upper == "WSTREAM")
    inner_end = closing(items, start + 1)
    inner = list(items[start + 2 : inner_end])
    end, window = inner_end + 1, OracleWindow()
    if is_at(items, end, "["):
        window_end = closing(items, end)
        window, end = read_window(items[end + 1 : window_end]), window_end + 1
    rest = [*tokenize("FROM"), *clauses["FROM"]]
    for clause, words in (("WHERE", "WHERE"), ("GROUP", "GROUP BY"), ("HAVING", "HAVING")):
        if clauses[clause]:
            rest += [*tokenize(words), *clauses[clause]]
    ((_, block),) = rewrite_query([*tokenize("SELECT"), *inner, *rest], context, scope)
    sql, columns, depends = context.wstream(block, window)
    if start == 0:
        name = items[end + (items[end].upper == "AS")].text if end < len(items) else None
        columns = [name] if name else columns
        return OracleBlock(f"SELECT * FROM ({sql}) AS w{_columns(columns)}", depends.instants)
    column = '"__w"'
    outer = f"{render(items[:start])} {column} {render(items[end:])}"
    return OracleBlock(f"SELECT {outer} FROM ({sql}) AS w({column})", depends.instants)


def _columns(names: Sequence[str]) -> str:
    return "(" + ", ".join(quote(n) for n in names) + ")"
