"""Values as literals of SQL: what a parameter is given, and what an instance of a template is called by."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from windrow.errors import BindingError
from windrow.scalar_engine import literal as quoted


def literal(value: Any) -> str:
    """A value as a literal.

    >>> literal(None), literal(True), literal(-1.5), literal("a'b"), literal([1, 2])
    ('NULL', 'TRUE', '-1.5', "'a''b'", '(1, 2)')
    """
    value = value.as_py() if hasattr(value, "as_py") else value.item() if hasattr(value, "item") else value
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return _float(value) if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
        case Decimal():
            return format(value, "f") if value.is_finite() else f"CAST('{value}' AS DOUBLE)"
        case str():
            return quoted(value)
        case bytes():
            return "CAST('" + "".join(f"\\x{b:02X}" for b in value) + "' AS BLOB)"
        case dt.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case dt.timedelta():
            return f"INTERVAL '{value // dt.timedelta(microseconds=1)} microseconds'"
        case list() | tuple() | set() | frozenset() if value:
            return "(" + ", ".join(literal(v) for v in value) + ")"
    raise BindingError(
        f"{value!r} cannot be the value of a parameter",
        hint="give a number, a text, a date or time, a boolean, None, or a list of these for IN",
    )


def _float(value: float) -> str:
    """Few digits as a decimal, many with an exponent: what has one is a DOUBLE, and is read as the nearest."""
    shown = repr(value)
    return shown if len(shown) <= 16 or "e" in shown else f"{value:.16e}"
