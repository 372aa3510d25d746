"""Answers as people and programs read them: terminal tables, csv, json, parquet, one JSON document.

csv and json are written by DuckDB, the engine that gives scalars their meaning, whole columns at a time. In JSON times
are ISO 8601; it has no NaN or infinity, so those are written as strings.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from windrow.engine.display import in_order, written
from windrow.errors import SourceError
from windrow.scalar_engine import connect, literal, quote
from windrow.sinks.json_text import json_value

Answers = Mapping[str, pa.Table]


def write_files(answers: Answers, directory: Path, kind: str) -> dict[str, str]:
    """Write each table to `directory/name.kind`; return the paths."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        paths = {name: directory / f"{_file_name(name)}.{kind}" for name in answers}
        for name, path in paths.items():
            write_file(answers[name], path, kind)
    except OSError as error:
        raise SourceError(f"cannot write to {directory}", detail=str(error)) from error
    return {name: str(path) for name, path in paths.items()}


def write_file(table: pa.Table, path: Path, kind: str) -> None:
    """Write one table as csv, json (an object per line), array (one JSON array) or parquet."""
    if kind == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
        return
    with connect(file=str(path)) as engine:
        engine.register("answer", table)
        how = {"csv": "FORMAT csv, HEADER", "json": "FORMAT json", "array": "FORMAT json, ARRAY"}[kind]
        columns = "*" if kind == "csv" else ", ".join(_json_column(f) for f in table.schema)
        engine.execute(f"COPY (SELECT {columns} FROM answer) TO {literal(str(path))} ({how})")


def print_rows(table: pa.Table, kind: str) -> None:
    """Write one table to standard output as csv or json."""
    sys.stdout.write(_text(in_order(table), kind))


def document(answers: Answers, late: Answers, seconds: float, files: Mapping[str, str]) -> str:
    """All answers (or the files they went to), the late rows and the time, as one JSON document."""
    parts = {
        "files" if files else "answers": json.dumps(files) if files else _object(answers),
        "rows": json.dumps({name: len(t) for name, t in answers.items()}),
        "late": _object(late),
        "seconds": json.dumps(round(seconds, 3)),
    }
    return "{" + ", ".join(f'"{key}": {value}' for key, value in parts.items()) + "}\n"


def print_tables(answers: Answers, limit: int) -> None:
    """Print each answer as a table of at most `limit` rows (0: all)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe has no width to wrap at
    for name, table in answers.items():
        shown = in_order(table)
        shown = shown.slice(0, limit) if limit > 0 else shown
        # Not the table's title, which would wrap at the width of a narrow table.
        console.print(f"{name} ({len(table):,} row{'' if len(table) == 1 else 's'})", style="italic", markup=False)
        view = Table()
        for field in table.schema:
            view.add_column(Text(field.name), justify="right" if _is_number(field.type) else "left")
        for row in zip(*(shown.column(i).to_pylist() for i in range(table.num_columns)), strict=True):
            view.add_row(*(Text(written(value)) for value in row))
        console.print(view)
        if len(shown) < len(table):
            console.print(f"... {len(table) - len(shown):,} more rows (--limit 0 shows all)", markup=False)


def _object(tables: Answers) -> str:
    return (
        "{"
        + ", ".join(f"{json.dumps(name)}: {_text(in_order(t), 'array').strip()}" for name, t in tables.items())
        + "}"
    )


def _text(table: pa.Table, kind: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        write_file(table, path, kind)
        return path.read_text(encoding="utf-8")


def _json_column(field: pa.Field) -> str:
    name = quote(field.name)
    return f"{json_value(name, field.type)} AS {name}" if _is_rewritten(field.type) else name


def _is_rewritten(type_: pa.DataType) -> bool:
    """Whether there is something in it that DuckDB would write in another way than the rest of windrow."""
    if pa.types.is_floating(type_) or pa.types.is_timestamp(type_):
        return True
    return any(_is_rewritten(type_.field(i).type) for i in range(type_.num_fields))


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
