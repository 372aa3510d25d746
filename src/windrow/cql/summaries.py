"""FREQUENT and its delta: their arguments, and the windows they can be computed over.

The basic windows are the query's own periods (thesis 6.2), so that sharing changes nothing: a window of time must be a
multiple of its SLIDE, and so must a window of rows. Rows must leave in the order in which they came (pattern weakest),
because a summary leaves as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from windrow.cql.bounds import EvaluationGrid
from windrow.cql.scope import operand, span_of
from windrow.cql.source import ScriptText
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.aggregates.call import FREQUENT, SKETCHED, SUMMARISED, frequent_type
from windrow.plan.nodes import (
    Aggregation,
    Append,
    Emit,
    Filter,
    Node,
    Project,
    Window,
    WindowKind,
)
from windrow.plan.patterns import Pattern, lifetimes

_WHOLE = re.compile(r"\d{1,18}")
_SHARE = re.compile(r"0?\.\d{1,17}")
_HINT = "write a window that is a multiple of its SLIDE: [RANGE 1 HOUR SLIDE 1 MINUTE] or [ROWS 100000 SLIDE 500]"
_NUMBER = re.compile(r"\d{1,18}(\.\d*)?|\.\d+")
_EXACT = {"approx_count_distinct": "count", "approx_quantile": "quantile_cont", "approx_top_k": "top_k"}
MOST_KEPT = 10_000
"""The greatest k."""


def parted(calls: Sequence[Aggregation]) -> tuple[tuple[Aggregation, ...], tuple[Aggregation, ...]]:
    """Calls by how they are kept: those that need their rows, and those by summaries, which count rows, too."""
    summaries = tuple(c for c in calls if c.kind in SUMMARISED)
    if not summaries:
        return tuple(calls), ()
    plain = tuple(c for c in calls if c.kind not in SUMMARISED)
    if all(c.column is None for c in plain):
        return (), tuple(calls)
    return plain, summaries


def summary_type(call: exp.Expr, kind: str, type_: pa.DataType, source: ScriptText) -> pa.DataType:
    """The type of an answer over values of a type."""
    if kind == "approx_top_k" and not (has_simple_codes(type_) or pa.types.is_string(type_)):
        raise UnsupportedError(
            f"APPROX_TOP_K of a {type_}",
            hint="write TOP_K, or take numbers, times or text",
            span=span_of(call, source),
        )
    if kind in ("frequent_delta", "approx_count_distinct"):
        return pa.int64()
    if kind == "approx_quantile":
        return pa.float64()
    return pa.list_(type_) if kind == "approx_top_k" else frequent_type(type_)


def most_values(kind: str, parameters: Sequence[Any]) -> int:
    """How many values of its column an answer has, about."""
    return int(parameters[0]) if kind in ("top_k", "approx_top_k", "frequent") else 1


def summary_arguments(
    call: exp.Expr, kind: str, arguments: Sequence[exp.Expr], source: ScriptText
) -> tuple[exp.Expr, tuple[Any, ...]]:
    """The column, the k, and (of FREQUENT) the threshold: a number of rows, or below 1 a share of them."""
    if kind in SKETCHED:
        return _sketch_arguments(call, kind, arguments, source)
    name = call.name.upper()
    most = 3 if kind == "frequent" else 2
    if not 2 <= len(arguments) <= most:
        raise BindingError(
            f"{name} takes {'2 or 3' if most == 3 else '2'} arguments, not {len(arguments)}",
            hint=f"write {name}(a, 10)"
            + (" or, for values of more than 1 % of the rows, FREQUENT(a, 10, 0.01)") * (most == 3),
            span=span_of(call, source),
        )
    column, *rest = arguments
    texts = [p.unnest().name if isinstance(p.unnest(), exp.Literal) else "" for p in rest]
    if not _WHOLE.fullmatch(texts[0]) or not 1 <= int(texts[0]) <= MOST_KEPT:
        raise BindingError(
            f"the second argument of {name} must be a whole number from 1 to {MOST_KEPT:,}",
            detail="it says how many values of each basic window are kept",
            hint=f"write {name}(a, 10)",
            span=span_of(rest[0], source) or span_of(call, source),
        )
    if len(texts) == 1:
        return column, (int(texts[0]),)
    if not (_WHOLE.fullmatch(texts[1]) or _SHARE.fullmatch(texts[1])):
        raise BindingError(
            "the third argument of FREQUENT must be a number of rows, or a share below 1",
            hint="write FREQUENT(a, 10, 500) or FREQUENT(a, 10, 0.01)",
            span=span_of(rest[1], source) or span_of(call, source),
        )
    return column, (int(texts[0]), int(texts[1]) if _WHOLE.fullmatch(texts[1]) else float(texts[1]))


def sketched(kind: str, arguments: list[exp.Expr], node: Node, grid: EvaluationGrid | None) -> str:
    """The kind by which a sketch's aggregate is computed here: over windows that it cannot summarise, the exact one.

    Quantiles are of finite doubles, whatever computes them.
    """
    if kind == "approx_quantile" and arguments:
        value = exp.cast(operand(arguments[0]), "DOUBLE")
        finite = exp.Anonymous(this="isfinite", expressions=[value.copy()])
        arguments[0] = exp.Case(ifs=[exp.If(this=finite, true=value)])
    ranges = grid is not None and all(w.spec.kind is WindowKind.RANGE for w in _windows(node))
    ordered = ranges and lifetimes(node)[node].pattern in (Pattern.WEAKEST, Pattern.WEAK)
    return kind if ordered else _EXACT[kind]


def _sketch_arguments(
    call: exp.Expr, kind: str, arguments: Sequence[exp.Expr], source: ScriptText
) -> tuple[exp.Expr, tuple[Any, ...]]:
    """The column, and the fraction or the k."""
    wanted = 1 if kind == "approx_count_distinct" else 2
    example = {"approx_count_distinct": "a", "approx_quantile": "a, 0.9", "approx_top_k": "a, 10"}[kind]
    text = arguments[-1].unnest().name if isinstance(arguments[-1].unnest(), exp.Literal) else ""
    if kind == "approx_quantile":
        good = bool(_NUMBER.fullmatch(text)) and 0 <= float(text) <= 1
    else:
        good = wanted == 1 or (bool(_WHOLE.fullmatch(text)) and 1 <= int(text) <= MOST_KEPT)
    if len(arguments) != wanted or not good:
        raise BindingError(
            f"{call.name.upper()} takes {'one argument' if wanted == 1 else 'a column and a constant'}",
            hint=f"write {call.name.upper()}({example})",
            span=span_of(call, source),
        )
    if wanted == 1:
        return arguments[0], ()
    return arguments[0], (float(text) if kind == "approx_quantile" else int(text),)


def has_simple_codes(type_: pa.DataType) -> bool:
    """Numbers and times of at most 64 bits."""
    if pa.types.is_decimal(type_):
        return bool(type_.precision <= 18)
    return pa.types.is_primitive(type_) and type_.bit_width <= 64


def no_distinct(call: exp.Expr, source: ScriptText) -> BindingError:
    """DISTINCT leaves nothing to count."""
    return BindingError(
        f"{call.name.upper()} of DISTINCT values", hint="leave DISTINCT out", span=span_of(call, source)
    )


def basic_windows(node: Node, grid: EvaluationGrid | None, calls: Sequence[Aggregation]) -> tuple[int, int] | None:
    """The period and offset of the basic windows, None if they are slices of a window of rows; raises if neither."""
    if grid is None:
        _check_rows(node)
        return None
    if not any(c.kind in FREQUENT for c in calls):
        return grid.period, grid.offset
    windows = list(_windows(node))
    exact = all(w.spec.kind is WindowKind.RANGE and (w.spec.size or 1) % grid.period == 0 for w in windows)
    if not exact:
        raise UnsupportedError(
            "FREQUENT over a window that is no multiple of its SLIDE",
            detail="its basic windows are the periods of the query",
            hint=_HINT,
        )
    if lifetimes(node)[node].pattern is not Pattern.WEAKEST:
        raise UnsupportedError(
            "FREQUENT over rows that do not leave in the order in which they came",
            detail="joins of streams, DISTINCT and negation below it make the pattern weak or strict",
            hint="take the frequent values of one stream, and join the answer",
        )
    return grid.period, grid.offset


def _check_rows(node: Node) -> None:
    while isinstance(node, Filter | Project):
        node = node.input
    if not isinstance(node, Window) or node.spec.kind is not WindowKind.ROWS:
        raise UnsupportedError(
            "FREQUENT over a window without SLIDE",
            detail="its basic windows are the periods of the query",
            hint=_HINT,
        )
    spec = node.spec
    if spec.slide is None or (spec.size or 1) % spec.slide or spec.partition or spec.internal or node.derived:
        raise UnsupportedError(
            "FREQUENT over this window of rows",
            detail="it must be a multiple of its SLIDE, without PARTITION BY and INTERNAL, on a stream",
            hint="write [ROWS 100000 SLIDE 500], and GROUP BY in place of PARTITION BY",
        )


def _windows(node: Node) -> list[Window]:
    if isinstance(node, Window):
        return [node]
    if isinstance(node, Append | Emit):
        return []
    return [w for i in node.inputs for w in _windows(i)]
