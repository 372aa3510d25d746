"""Which expressions can never raise.

DuckDB raises on casts that fail, on integer overflow and on `%` or `//` by zero. A predicate that may raise must not
see rows it did not see before, so rules move it less; and it is asked of all rows that reach it, whatever other
conjuncts say, so that whether it raises does not depend on their order. Proving that it cannot is a small grammar:
columns of plain types, literals, comparisons, logic, null tests, arithmetic on floats, and some functions that accept
everything. What the grammar does not know is taken to raise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import pyarrow as pa

from windrow.plan.expr import Expr, Ref

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|//|\*\*|[<>=(),+\-*/%])|(?P<ref>\x00))\s*"
)
_WORDS = {"AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "IN", "BETWEEN", "LIKE", "DISTINCT", "FROM"}
_PATTERNS = {"REGEXP_MATCHES", "REGEXP_FULL_MATCH"}
_FUNCTIONS = {
    "LOWER", "UPPER", "LENGTH", "TRIM", "STARTS_WITH", "CONTAINS", "ISNAN", "ISFINITE", "ISINF",
    "LEVENSHTEIN", "DAMERAU_LEVENSHTEIN", "JARO_SIMILARITY", "JARO_WINKLER_SIMILARITY", *_PATTERNS,
}  # fmt: skip
_TYPED_LITERAL = re.compile(r"CAST\(('[^']*') AS (?:TIMESTAMP|DATE|TIMESTAMPTZ)\)")

_TYPED_NULL = re.compile(r"CAST\(NULL AS [A-Z][A-Z ]*(?:\(\d+(?:, *\d+)?\))?\)")
"""What outer joins pad with; a string beside one may be cast to its type."""


def total(e: Expr, types: Mapping[str, pa.DataType]) -> bool:
    """Whether the expression has a value on every row, whatever its columns hold.

    >>> types = {"a": pa.int64(), "x": pa.float64()}
    >>> total(Expr((Ref("a"), " > 3"), pa.bool_()), types), total(Expr((Ref("a"), " + 1 > 3"), pa.bool_()), types)
    (True, False)
    """
    if e.functions:
        return False
    used = frozenset(types[c] for c in e.columns if not pa.types.is_boolean(types[c]))
    return _total("".join("\x00" if isinstance(p, Ref) else p for p in e.parts), used)


@lru_cache(maxsize=4096)  # each rule that moves an expression asks, and so does whoever runs it
def _total(text: str, used: frozenset[pa.DataType]) -> bool:
    """The same of a text with holes, over columns of these types."""
    alike = len(used) <= 1 or all(_numeric(t) for t in used)
    tokens = _tokens(text)
    return alike and all(_plain(t) for t in used) and tokens is not None and _accepts(tokens, used)


def key_safe(e: Expr, types: Mapping[str, pa.DataType]) -> bool:
    """Whether the expression is the same for all values that count as equal.

    0.0 and -0.0 are one value to a key; comparisons agree, but a cast to text or a division does not.
    """
    divides = any("/" in p for p in e.parts if isinstance(p, str))
    return not any(_has_float(types[c]) for c in e.columns) or (total(e, types) and not divides)


def _tokens(text: str) -> list[tuple[str, str]] | None:
    """A text with holes as (kind, text), or None if some of it is no token that is known here."""
    text = _TYPED_LITERAL.sub(r"\1", text)
    text = text if "'" in text else _TYPED_NULL.sub("NULL", text)
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        at = match.end()
    return found


def _accepts(tokens: Sequence[tuple[str, str]], used: Collection[pa.DataType]) -> bool:
    """Whether every token is harmless where it stands, over columns of these types."""
    floats = bool(used) and all(pa.types.is_floating(t) for t in used)
    numeric = any(_numeric(t) for t in used)
    temporal = any(pa.types.is_temporal(t) for t in used)
    matched = any(kind == "word" and text.upper() in _PATTERNS for kind, text in tokens)
    ends = [("sign", "("), *tokens, ("", "")]
    for before, (kind, text), after in zip(ends, tokens, ends[2:], strict=False):
        match kind:
            case "word":
                called = after[1] == "(" and text.upper() not in _WORDS
                fine = text.upper() in (_FUNCTIONS if called else _WORDS)
            case "number":  # a long decimal makes DuckDB cast the column to a decimal that it may not fit
                fine = len(text.partition(".")[2]) <= 10 or "e" in text.lower()
            case "string":  # compared with a column of another type it is cast, at run time
                fine = not numeric and (not temporal or _is_time(text)) and (not matched or _is_pattern(text))
            case "sign" if text in ("+", "-", "*"):
                negative = text == "-" and after[0] == "number" and before[0] in ("sign", "word") and before[1] != ")"
                fine = floats or negative
            case "sign" if text in ("%", "//", "**"):
                fine = text == "%" and after[0] == "number" and after[1].isdigit() and int(after[1]) > 0
            case _:
                fine = True
        if not fine:
            return False
    return True


def _is_pattern(literal: str) -> bool:
    """Whether a text is a regular expression in the part of the language that cannot be written wrongly unnoticed."""
    text = literal[1:-1]
    if not re.fullmatch(r"[\w .,:;@#%&=<>!~/^$|()\[\]*+?-]*", text) or re.search(r"[*+?][*+]|\(\?|\[[^\]]*\[", text):
        return False
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _is_time(literal: str) -> bool:
    try:
        datetime.fromisoformat(literal.strip("'"))
    except ValueError:
        return False
    return True


def _numeric(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) or pa.types.is_floating(t)


def _plain(t: pa.DataType) -> bool:
    text = pa.types.is_string(t) or pa.types.is_large_string(t)
    return _numeric(t) or text or pa.types.is_timestamp(t) or pa.types.is_date(t)


def _has_float(t: pa.DataType) -> bool:
    return pa.types.is_floating(t) or pa.types.is_nested(t)
