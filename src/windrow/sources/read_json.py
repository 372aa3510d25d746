"""JSON: an object in a line, or (multiLine) an array of objects in a file. A key that is missing is null.

Lines as programs write them are parsed by a compiled pass (`plain_json`). Blocks of others are parsed by Arrow straight
to the declared types, and what it does not take (a number where text is declared) is taken apart by DuckDB and cast by
the law of casts, as in a replay. All three give the same rows. Cost: one pass; for a line that needs the second one
about ten times as long, for a block that needs the third one about fifty times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from windrow.catalog import StreamDef
from windrow.scalar_engine import cursor, literal
from windrow.sources.casting import sql_name
from windrow.sources.data_file import DataFile, Given, refuse, said_by_path
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import MalformedRow, Report
from windrow.sources.row_text import RowOrigin, RowParser, one_batch, parse_again, parse_columns, time_forms, timed

PLAIN_BYTES = 1 << 16
"""Blocks from here on are worth a compiled parser, which must be loaded."""


@dataclass(frozen=True)
class JsonFormat:
    """How a JSON file is written."""

    whole: bool = False
    drop: bool = False
    times: str | None = None  # strptime formats
    dates: str | None = None

    def given(self, stream: StreamDef, file: DataFile) -> Given:
        """The columns that the path of a file says."""
        return file.given

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
class ChosenRows:
    """Some rows of a block, by their numbers; `refused` are those of them that are malformed."""

    origin: RowOrigin
    numbers: np.ndarray
    chosen: Sequence[bytes]
    refused: set[int] = field(default_factory=set)

    def malformed(self, row: int, why: str) -> MalformedRow:
        """The row of that index among the chosen."""
        self.refused.add(row)
        return self.origin.malformed(int(self.numbers[row]), why)

    def texts(self) -> Sequence[bytes]:
        """What is written in each of them."""
        return self.chosen


@dataclass
class JsonRows:
    """Parses blocks of objects.

    `plain` until lines turn out to be otherwise, `careful` once Arrow's parser has refused a block.
    """

    stream: StreamDef
    format: JsonFormat
    wanted: Mapping[str, pa.DataType]
    report: Report | None
    given: Given = ()
    careful: bool = False
    plain: bool = True

    def __call__(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        """The rows of a block."""
        if self.format.whole:
            texts = _elements(block)
            return self._objects(texts, origin, _order(texts[0] if texts else b""))
        order = _order(_first_line(block))
        if self.plain and len(block) >= PLAIN_BYTES and (found := self._plain(block, origin, order)) is not None:
            return found
        return self._typed_or_taken_apart(block, origin, order)

    def _typed_or_taken_apart(self, block: bytes, origin: RowOrigin, order: Sequence[str]) -> pa.RecordBatch:
        if not self.careful:
            try:
                return timed(self.stream, self._typed(block, origin, order))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
                self.careful = True
        texts = origin.texts()
        return self._objects(texts, origin, order or _order(texts[0] if texts else b""))

    def _plain(self, block: bytes, origin: RowOrigin, order: Sequence[str]) -> pa.RecordBatch | None:
        """The rows of plain lines, and between them those of the others; None if a line may not be one object."""
        from windrow.sources.plain_json import read_plain

        types = self._inside()
        keys = _keys(order, list(types))
        try:
            found = None if self._forms() else read_plain(block, types, list(keys.values()), order, self.stream.time)
        except pa.ArrowInvalid:  # text that is not UTF-8, a number beyond all doubles
            return None
        self.plain = found is not None
        if found is None:
            return None
        rows = found.rows
        if len(found.odd):
            texts = origin.texts()
            odd = ChosenRows(origin, found.odd, [texts[i] for i in found.odd] if len(texts) == found.lines else [])
            if not odd.chosen or not all(t.strip().startswith(b"{") and t.strip().endswith(b"}") for t in odd.chosen):
                return None
            others = self._typed_or_taken_apart(b"\n".join(odd.chosen), odd, order).select(rows.schema.names)
            if len(others) != len(odd.chosen) - len(odd.refused):  # several objects in a line
                return None
            kept = np.delete(found.odd, np.array([*odd.refused], np.int64))
            lines = np.concatenate((np.delete(np.arange(found.lines), found.odd), kept))
            rows = pa.concat_batches([rows, others]).take(pa.array(np.argsort(lines)))
        return self._finish(pa.table(rows), types, {}, np.arange(len(rows)), origin, None)

    def _inside(self) -> dict[str, pa.DataType]:
        """The columns that objects have, not paths."""
        return {n: t for n, t in self.wanted.items() if n.lower() not in {g.lower() for g, _ in self.given}}

    def _forms(self) -> dict[str, str]:
        return time_forms(self.wanted, self.format.times, self.format.dates)

    def _typed(self, block: bytes, origin: RowOrigin, order: Sequence[str]) -> pa.RecordBatch:
        forms = self._forms()
        types = {n: pa.string() if n in forms or not _by_arrow(t) else t for n, t in self._inside().items()}
        keys = _keys(order, list(types))
        parse = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(keys[n], t) for n, t in types.items()]), unexpected_field_behavior="ignore"
        )
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = arrow_json.read_json(pa.BufferReader(block), read, parse).rename_columns(list(types))
        for column in table.columns:
            if pa.types.is_string(column.type):
                column.validate(full=True)  # the parser does not look whether text is UTF-8
        return self._finish(table, types, forms, np.arange(table.num_rows), origin, parse_again)

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

    def _objects(self, texts: Sequence[bytes], origin: RowOrigin, order: Sequence[str]) -> pa.RecordBatch:
        """The rows taken apart by DuckDB; plain values come as text and are cast by the law of casts."""
        inside = list(self._inside())
        keys = _keys(order, inside)
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
        return self._finish(table, dict.fromkeys(inside), self._forms(), rows, origin, self.report)

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
            refuse(self.stream, origin.malformed(row, f'column "{name}" is not {sql_name(type_)}'), self.report)
        engine.execute(f"UPDATE objects SET kind = '' WHERE {unfit}")
        return value


def _by_arrow(type_: pa.DataType) -> bool:
    """Whether Arrow's parser reads the type as the law of casts does."""
    kinds = pa.types
    plain = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_string, kinds.is_timestamp)
    if kinds.is_list(type_):
        return _by_arrow(type_.value_type)
    if kinds.is_struct(type_):
        return all(_by_arrow(part.type) for part in type_)
    return any(check(type_) for check in plain) or kinds.is_decimal128(type_)


def _first_line(block: bytes) -> bytes:
    """The first line that holds something."""
    if (begin := re.search(rb"\S", block)) is None:
        return b""
    stop = block.find(b"\n", begin.start())
    return block[begin.start() : stop if stop >= 0 else len(block)]


def _order(text: bytes) -> list[str]:
    """The keys of an object in their order; none if it is not one."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return list(found) if isinstance(found, dict) else []


def _keys(order: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The key of each column: as declared, unless the first object has it in another case."""
    found = {k.lower(): k for k in order}
    return {n: n if n in order else found.get(n.lower(), n) for n in names}


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
