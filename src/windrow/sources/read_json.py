"""JSON: an object in a line, or (multiLine) an array of objects in a file. A key that is missing is null.

Blocks are parsed by Arrow straight to the declared types. What it does not take (a number where text is declared) is
taken apart by DuckDB and cast by the law of casts, as in a replay. Cost: one pass; about five times as long for a block
that needs the second one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from windrow.catalog import StreamDef
from windrow.scalar_engine import cursor, literal
from windrow.sources.data_file import DataFile, Given, refuse, said_by_path
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Report
from windrow.sources.row_text import RowOrigin, RowParser, one_batch, parse_columns, time_forms, timed


@dataclass(frozen=True)
class JsonFormat:
    """How a JSON file is written."""

    whole: bool = False
    drop: bool = False
    times: str | None = None  # strptime formats
    dates: str | None = None

    def open(
        self, stream: StreamDef, file: DataFile, wanted: Mapping[str, pa.DataType], report: Report | None
    ) -> tuple[RowParser, int]:
        """A parser of blocks; rows begin at the beginning."""
        return JsonRows(stream, self, wanted, report, file.given), 0


def json_format(options: SourceOptions) -> JsonFormat:
    """The format that a declaration's options describe."""
    return JsonFormat(
        whole=options.flag("multiLine", False),
        drop=options.drops_malformed(),
        times=options.time_format("timestampFormat"),
        dates=options.time_format("dateFormat"),
    )


@dataclass
class JsonRows:
    """Parses blocks of objects; `careful` once Arrow's parser has refused a block."""

    stream: StreamDef
    format: JsonFormat
    wanted: Mapping[str, pa.DataType]
    report: Report | None
    given: Given = ()
    careful: bool = False

    def __call__(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        """The rows of a block."""
        if self.format.whole:
            return self._objects(_elements(block), origin)
        if not self.careful:
            try:
                return timed(self.stream, self._typed(block, origin))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
                self.careful = True
        return self._objects(origin.texts(), origin)

    def _typed(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        forms = time_forms(self.wanted, self.format.times, self.format.dates)
        inside = {n: t for n, t in self.wanted.items() if n.lower() not in {g.lower() for g, _ in self.given}}
        types = {n: pa.string() if n in forms or not _plain(t) else t for n, t in inside.items()}
        keys = _keys(block, list(types))
        parse = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(keys[n], t) for n, t in types.items()]), unexpected_field_behavior="ignore"
        )
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = arrow_json.read_json(pa.BufferReader(block), read, parse).rename_columns(list(types))
        for column in table.columns:
            if pa.types.is_string(column.type):
                column.validate(full=True)  # the parser does not look whether text is UTF-8
        return self._finish(table, types, forms, np.arange(table.num_rows), origin, _parse_again)

    def _finish(
        self,
        table: pa.Table,
        types: Mapping[str, pa.DataType],
        forms: Mapping[str, str],
        rows: np.ndarray,
        origin: RowOrigin,
        report: Report | None,
    ) -> pa.RecordBatch:
        """Cast what was read as text, and put in what the path says."""
        for name in self.wanted:
            if name not in types:
                table = table.append_column(name, said_by_path(self.given, name, table.num_rows))
        table = table.select(list(self.wanted))
        if table.schema.types == list(self.wanted.values()):
            return one_batch(table)
        return parse_columns(self.stream, table, self.wanted, forms, rows, origin, report)

    def _objects(self, texts: Sequence[bytes], origin: RowOrigin) -> pa.RecordBatch:
        """The rows taken apart by DuckDB; plain values come as text and are cast by the law of casts."""
        inside = [n for n in self.wanted if n.lower() not in {g.lower() for g, _ in self.given}]
        keys = _keys(texts[0] if texts else b"", inside)
        engine = cursor()
        engine.register("texts", pa.table({"row": np.arange(len(texts)), "text": [_decoded(t) for t in texts]}))
        engine.execute(
            "CREATE TEMP TABLE objects AS "
            "SELECT row, text, CASE WHEN json_valid(text) THEN json_type(text) ELSE '' END AS kind FROM texts"
        )
        for row, kind in engine.sql("SELECT row, kind FROM objects WHERE kind <> 'OBJECT' ORDER BY row").fetchall():
            refuse(self.stream, origin.malformed(row, "not a JSON object" if kind else "not JSON"), self.report)
        fields = []
        for name in inside:
            fields.append(self._field(engine, name, keys[name], origin))
        query = f"SELECT {', '.join(['row', *fields])} FROM objects WHERE kind = 'OBJECT' ORDER BY row"
        table = engine.sql(query).to_arrow_table()
        rows = table.column("row").to_numpy()
        table = table.drop_columns(["row"]).rename_columns(inside)
        nested = {n: t for n, t in self.wanted.items() if pa.types.is_nested(t) and n in inside}
        for name, type_ in nested.items():
            table = table.set_column(inside.index(name), name, table.column(name).cast(type_))
        forms = time_forms(self.wanted, self.format.times, self.format.dates)
        return self._finish(table, dict.fromkeys(inside), forms, rows, origin, self.report)

    def _field(self, engine: duckdb.DuckDBPyConnection, name: str, key: str, origin: RowOrigin) -> str:
        """The expression for a column of the objects; those that do not fit a nested type are refused here."""
        path = literal("$." + json.dumps(key, ensure_ascii=False))
        type_ = self.wanted[name]
        if not pa.types.is_nested(type_):
            return f"json_extract_string(text, {path})"
        target = engine.from_arrow(pa.table({"v": pa.array([], type_)})).types[0]
        value = f"TRY_CAST(json_extract(text, {path}) AS {target})"
        unfit = f"kind = 'OBJECT' AND json_extract_string(text, {path}) IS NOT NULL AND {value} IS NULL"
        for (row,) in engine.sql(f"SELECT row FROM objects WHERE {unfit} ORDER BY row").fetchall():
            refuse(self.stream, origin.malformed(row, f'column "{name}" is not {type_}'), self.report)
        engine.execute(f"UPDATE objects SET kind = '' WHERE {unfit}")
        return value


def _plain(type_: pa.DataType) -> bool:
    """Whether Arrow's parser reads the type as the law of casts does."""
    kinds = pa.types
    plain = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_string, kinds.is_timestamp)
    if kinds.is_list(type_):
        return _plain(type_.value_type)
    if kinds.is_struct(type_):
        return all(_plain(field.type) for field in type_)
    return any(check(type_) for check in plain) or kinds.is_decimal128(type_)


def _keys(block: bytes, names: Sequence[str]) -> dict[str, str]:
    """The key of each column: as declared, unless the first object has it in another case."""
    try:
        first = json.loads(block.lstrip()[: block.lstrip().find(b"\n")] if b"\n" in block.strip() else block)
    except ValueError:
        first = None
    found = {k.lower(): k for k in first} if isinstance(first, dict) else {}
    return {n: n if not found or n in first else found.get(n.lower(), n) for n in names}


def _elements(block: bytes) -> list[bytes]:
    """The elements of a file that is an array, or the one object that it is."""
    content = json.loads(block)
    return [
        json.dumps(item, ensure_ascii=False).encode() for item in (content if isinstance(content, list) else [content])
    ]


def _decoded(text: bytes) -> str:
    """Text, or what cannot be JSON if it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""


def _parse_again(row: object) -> None:
    """A value that a format of times does not fit: take the block apart with more care."""
    raise pa.ArrowInvalid("parse again as text")
