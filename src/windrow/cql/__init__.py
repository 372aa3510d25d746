"""CQL: text to checked statements. The only package that imports sqlglot.

    parse(script)                  syntax: the statements of a script, each with its place
    bind(statement, catalog)       meaning: definitions and plans, or an error with line, column and hint

sqlglot and DuckDB load on first use, so that importing windrow stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.cql.binding import bind, compile_instance, compile_select
    from windrow.cql.bound import (
        Alter,
        Bound,
        Create,
        Describe,
        Drop,
        Explain,
        Show,
    )
    from windrow.cql.one_time import OneTimeSelect
    from windrow.cql.statement_forms import (
        AlterStatement,
        CreateSinkStatement,
        Declaration,
        Statement,
        created_by,
        let_go,
    )
    from windrow.cql.statements import parse

__all__ = [
    "Alter",
    "AlterStatement",
    "Bound",
    "Create",
    "CreateSinkStatement",
    "Declaration",
    "Describe",
    "Drop",
    "Explain",
    "OneTimeSelect",
    "Show",
    "Statement",
    "bind",
    "compile_instance",
    "compile_select",
    "created_by",
    "let_go",
    "parse",
]

_HOMES = {
    "OneTimeSelect": "one_time",
    "AlterStatement": "statement_forms",
    "Declaration": "statement_forms",
    "CreateSinkStatement": "statement_forms",
    "Statement": "statement_forms",
    "created_by": "statement_forms",
    "let_go": "statement_forms",
    "parse": "statements",
    "bind": "binding",
    "compile_instance": "binding",
    "compile_select": "binding",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    _refuse_compiled()
    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'bound')}"), name)
    globals()[name] = found  # asked once
    return found


def _refuse_compiled() -> None:
    """Say what is wrong where the classes of sqlglot are compiled: CQL extends them, which those cannot be."""
    from importlib.util import find_spec

    from windrow.errors import RuntimeFailure

    found = find_spec("sqlglot.parser")
    if found is not None and not (found.origin or "").endswith(".py"):
        raise RuntimeFailure(
            "sqlglot is compiled in this environment",
            detail="windrow extends its parser, and compiled classes cannot be extended",
            hint="pip uninstall sqlglotc",
        )
