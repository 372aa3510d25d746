"""Random calls of aggregates that need all values of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.testing.random_fragments import QueryFragments


def by_value(w: QueryFragments, alias: str) -> str:
    """A call whose value depends on the rows alone: floats only where nobody compares them exactly."""
    value = w.pick(f"{alias}.a", f"{alias}.s", f"{alias}.b", f"{alias}.x", f"{alias}.f", f"{alias}.ts")
    key = w.pick(f"{alias}.b", f"{alias}.x", f"{alias}.s", f"{alias}.ts")
    order = w.pick("", "", f" ORDER BY {key}", f" ORDER BY {key} DESC", f" ORDER BY {key} NULLS FIRST")
    calls = [
        f"ARG_MAX({value}, {key})", f"ARG_MIN({value}, {key})", f"MAX_BY({value}, {key}{order})",
        f"FIRST({value}{order})", f"LAST({value}{order})", f"ANY_VALUE({value}{order})", f"LIST({value}{order})",
        f"ARRAY_AGG({value}{order})", f"LIST(DISTINCT {value})", f"STRING_AGG({alias}.s, '+'{order})",
        f"STRING_AGG(DISTINCT {alias}.s, ',')", f"MODE({value})", f"BOOL_AND({alias}.f)", f"BOOL_OR({alias}.x > 0)",
        f"COUNT_IF({alias}.a > 1)", f"BIT_XOR({alias}.a)", f"BIT_AND({alias}.b)", f"BIT_OR(DISTINCT {alias}.b)",
    ]  # fmt: skip
    if not (w.exact or w.specials or w.extremes):
        x, y = f"{alias}.{w.pick('a', 'x')}", f"{alias}.{w.pick('b', 'x')}"
        kind = w.pick("CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT")
        calls += [f"{kind}({x}, {y})", f"{w.pick('SKEWNESS', 'KURTOSIS', 'PRODUCT', 'MAD')}({x})"]
    return w.pick(*calls)
