"""User functions: vectorised Python that queries may call by name.

A function sees a whole batch: one Arrow array per argument in, one value per row out. It must depend on its arguments
alone, because how rows are batched, and on which machine, is the engine's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from windrow.catalog import FunctionDef
from windrow.errors import BindingError

_registered: dict[str, FunctionDef] = {}

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "bool": pa.bool_(),
    "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "varchar": pa.string(), "string": pa.string(), "text": pa.string(), "blob": pa.binary(),
    "timestamp": pa.timestamp("us"), "date": pa.date32(),
}  # fmt: skip


def function(name: str, fn: Callable[..., object], returns: str | pa.DataType) -> None:
    """Register a vectorised function for use in any query; registering a name again replaces it."""
    if not name.isidentifier():
        raise BindingError(f"{name!r} is no name for a function", hint="use letters, digits and underscores")
    _registered[name.lower()] = FunctionDef(name.lower(), fn, _type(returns))


def registered() -> dict[str, FunctionDef]:
    """All functions registered so far."""
    return dict(_registered)


def _type(returns: str | pa.DataType) -> pa.DataType:
    if isinstance(returns, pa.DataType):
        return returns
    if returns.lower() not in _TYPES:
        raise BindingError(f"unknown type {returns!r}", hint=f"use one of {', '.join(_TYPES)}, or an Arrow type")
    return _TYPES[returns.lower()]
