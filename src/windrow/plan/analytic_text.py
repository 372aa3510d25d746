"""An analytic function as SQL over what is there at an instant.

Rows that tie in ORDER BY are put in the order of other columns, so that an answer depends on the rows alone. Where the
frame counts rows (and for functions without a frame) they are sort keys like any other; where it counts peers they must
stay peers, so they only order the rows of the frame among which FIRST_VALUE, LAST_VALUE and NTH_VALUE choose.
"""

from __future__ import annotations

from windrow.operators.analytic import COPY, INSTANT
from windrow.operators.linear import Formula
from windrow.operators.terms import SortKey
from windrow.plan.nodes import AnalyticCall
from windrow.scalar_engine import quote

_CHOOSE = frozenset(("first_value", "last_value", "nth_value"))
_IGNORE = " IGNORE NULLS)"


def over_instant(call: AnalyticCall) -> Formula:
    """The function over each partition at each instant."""
    keys, ties = [_key(k) for k in call.order], [_key(SortKey(c)) for c in call.ties]
    text = call.call.sql()
    if ties and call.function in _CHOOSE and not call.frame.startswith("ROWS"):
        end = _IGNORE if text.endswith(_IGNORE) else ")"
        text = f"{text.removesuffix(end)} ORDER BY {', '.join(keys + ties)}{end}"
    elif ties:
        keys += [*ties, quote(COPY)]
    by = f" ORDER BY {', '.join(keys)}" if keys else ""
    sql = f"{text} OVER (PARTITION BY {quote(INSTANT)}{by}{' ' * bool(call.frame)}{call.frame})"
    return Formula(sql, call.type, tuple(sorted(call.columns)))


def _key(key: SortKey) -> str:
    order, nulls = "DESC" if key.descending else "ASC", "FIRST" if key.nulls_first else "LAST"
    return f"{quote(key.column)} {order} NULLS {nulls}"
