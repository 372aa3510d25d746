"""CQL: text to checked statements. The only package that imports sqlglot.

    parse(script)                  syntax: the statements of a script, each with its place
    bind(statement, catalog)       meaning: definitions and plans, or an error with line, column and hint

sqlglot and DuckDB load on first use, so that importing windrow stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.cql.binding import (
        Bound,
        CreateArchive,
        CreateQueries,
        CreateQuery,
        CreateSink,
        CreateStream,
        CreateTable,
        CreateTemplate,
        Drop,
        Explain,
        bind,
        compile_instance,
        compile_select,
    )
    from windrow.cql.one_time import OneTimeSelect
    from windrow.cql.statements import CreateSinkStatement, Declaration, Statement, parse

__all__ = [
    "Bound",
    "CreateArchive",
    "CreateQueries",
    "CreateQuery",
    "CreateSink",
    "CreateSinkStatement",
    "CreateStream",
    "CreateTable",
    "CreateTemplate",
    "Declaration",
    "Drop",
    "Explain",
    "OneTimeSelect",
    "Statement",
    "bind",
    "compile_instance",
    "compile_select",
    "parse",
]

_HOMES = {
    "OneTimeSelect": "one_time",
    "Declaration": "statements",
    "CreateSinkStatement": "statements",
    "Statement": "statements",
    "parse": "statements",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'binding')}"), name)
    globals()[name] = found  # asked once
    return found
