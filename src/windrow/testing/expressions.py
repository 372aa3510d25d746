"""Expressions of CQL as DuckDB reads them: our aggregates spelled out, the papers' bare words quoted as strings.

Everything else is handed on as it is written; a subquery is rewritten by whoever knows the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from windrow.testing.summaries import EXACT, SLICE, SUMMARISED
from windrow.testing.tokens import Tokens, closing, is_at, render, split, top_level

Names = Set[str]
Subquery = Callable[[Tokens], str]

_COMPARISONS = frozenset({"=", "<>", "!=", "<", ">", "<=", ">="})
_NOT_STRINGS = frozenset(
    {"TRUE", "FALSE", "NULL", "CASE", "NOT", "CAST", "INTERVAL", "DATE", "TIMESTAMP", "TIME", "ANY", "ALL"}
)
_VARIANCES = {
    "VARIANCE": "var_samp", "VAR_SAMP": "var_samp", "VAR_POP": "var_pop",
    "STDDEV": "stddev_samp", "STDDEV_SAMP": "stddev_samp", "STDDEV_POP": "stddev_pop",
}  # fmt: skip


def rewrite_expression(tokens: Tokens, names: Names, subquery: Subquery) -> str:
    """An expression for DuckDB: subqueries rewritten, our aggregates spelled out, the papers' bare strings quoted."""
    out: list[str] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.text == "(" and _is_query(tokens, i):
            end = closing(tokens, i)
            out.append(f"({subquery(tokens[i + 1 : end])})")
            i = end + 1
        elif token.upper in _VARIANCES and _is_over(tokens, i):
            out.append(_VARIANCES[token.upper])
            i += 1
        elif token.upper in ("TOP_K", *EXACT, *SUMMARISED, *_VARIANCES) and is_at(tokens, i + 1, "("):
            text, i = _aggregate(tokens, i, names, subquery)
            out.append(text)
        elif token.upper == "APPROX_COUNT_DISTINCT" and is_at(tokens, i + 1, "("):
            out.append("count(DISTINCT")  # exact for as few values as tests have
            i += 2
        elif token.upper == "COUNT" and is_at(tokens, i + 1, "(") and is_at(tokens, i + 3, ".", "*", ")"):
            out.append("count(*)")
            i += 6
        else:
            out.append(_string_or_name(tokens, i, names))
            i += 1
    return " ".join(out)


def _is_over(tokens: Tokens, i: int) -> bool:
    """Whether the call at `i` is one OVER rows, which DuckDB computes for each by itself."""
    if not is_at(tokens, i + 1, "("):
        return False
    end = closing(tokens, i + 1) + 1
    if is_at(tokens, end, "FILTER", "("):
        end = closing(tokens, end + 1) + 1
    return is_at(tokens, end, "OVER")


def _is_query(tokens: Tokens, i: int) -> bool:
    """Whether the bracket at `i` holds a query, itself in brackets or not: not f((SELECT ...), a)."""
    first = i + 1
    while is_at(tokens, first, "("):
        first += 1
    if not is_at(tokens, first, "SELECT"):
        return False
    end = closing(tokens, i)
    return first == i + 1 or not any(tokens[k].text == "," for k in top_level(tokens[: end + 1], i + 1) if k < end)


def _string_or_name(tokens: Tokens, i: int, names: Names) -> str:
    token = tokens[i]
    qualified = is_at(tokens, i + 1, ".") or (i > 0 and tokens[i - 1].text in (".", "AS"))
    if token.name is None or token.name in names or qualified or is_at(tokens, i + 1, "("):
        return token.text
    compared = i > 0 and tokens[i - 1].text in _COMPARISONS and token.upper not in _NOT_STRINGS
    if token.kind == "quoted" and not (i > 0 and tokens[i - 1].upper == "AS"):
        return "'" + token.text[1:-1].replace("'", "''") + "'"
    return f"'{token.text}'" if compared else token.text


def _aggregate(tokens: Tokens, i: int, names: Names, subquery: Subquery) -> tuple[str, int]:
    """TOP_K and the variances over the list of the group's values, where they have an exact definition."""
    end = closing(tokens, i + 1)
    argument, *parameters = split(tokens[i + 2 : end], ",")
    distinct = "DISTINCT " if is_at(argument, 0, "DISTINCT") else ""
    value = rewrite_expression(argument[1:] if distinct else argument, names, subquery)
    predicates = [f"({value}) IS NOT NULL"]
    function, after = EXACT.get(tokens[i].upper, tokens[i].upper), end + 1
    if is_at(tokens, after, "FILTER", "(", "WHERE"):
        filter_end = closing(tokens, after + 1)
        predicates.append(f"({rewrite_expression(tokens[after + 3 : filter_end], names, subquery)})")
        after = filter_end + 1
    where = "FILTER (WHERE " + " AND ".join(predicates) + ")"
    if function == "TOP_K":
        return f"__top_k(list({value}) {where}, {render(parameters[0])})", after
    if function in SUMMARISED:
        least = render(parameters[1]) if len(parameters) > 1 else "0"
        lists = f"list({value}) {where}, list({SLICE}) {where}"
        return f"__{function.lower()}({lists}, {render(parameters[0])}, {least})", after
    return f"__{_VARIANCES[function]}(list({distinct}CAST({value} AS DOUBLE)) {where})", after
