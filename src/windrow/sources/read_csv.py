"""CSV: rows of values between delimiters (RFC 4180); columns by the names in the header, or by position.

Blocks are parsed straight to the declared types. What Arrow's parser does not take (a time with an offset where none is
declared, "yes" for true) is parsed again as text and cast by the law of casts, so that a value means the same here and
in a replay. Cost: one pass; a block that needs the second one takes about four times as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.data_file import DataFile, Given, find_columns, refuse, said_by_path
from windrow.sources.files import check_repeated
from windrow.sources.lines import FileLines, header
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Report
from windrow.sources.row_text import RowOrigin, RowParser, one_batch, parse_again, parse_columns, time_forms, timed

_HEX = re.compile(rb"0[xX]")
"""In what Arrow's parser takes for an integer, and the law of casts does not."""


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written."""

    delimiter: str = ","
    decimal: str = "."
    quote: str = '"'
    escape: str = ""
    header: bool = True
    null: str = ""
    encoding: str = "utf8"
    whole: bool = False
    drop: bool = False
    times: str | None = None  # strptime formats
    dates: str | None = None

    def given(self, stream: StreamDef, file: DataFile) -> Given:
        """The columns that the path of a file says, and its header does not have."""
        return file.less_given(self._names(header(file)[0]) if self.header else stream.columns).given

    def open(
        self, stream: StreamDef, file: DataFile, wanted: Mapping[str, pa.DataType], report: Report | None
    ) -> tuple[RowParser, int]:
        """A parser of blocks, and the byte behind the header; a file of blank lines has no header, and no rows."""
        line, first = header(file) if self.header else (b"", 0)
        if self.header and not line.strip():
            return CsvRows(stream, self, [], {}, wanted, report, file.given), first
        names = self._names(line) if self.header else list(stream.columns)
        check_repeated(stream.what, file.path, names, wanted)
        try:
            found = find_columns(stream, file.path, file.given, names, wanted)
        except SourceError as error:
            raise SourceError(
                f"{stream.what}: the CSV header does not conform to the declared columns: {file.path}",
                detail=f"it {error.primary.partition(file.path)[2].strip()}; {error.detail}",
                hint=self._advice(names),
            ) from None
        return CsvRows(stream, self, names, found, wanted, report, file.given), first

    def _advice(self, names: list[str]) -> str:
        """What to write when a header lacks a column: most often the delimiter is another one."""
        other = next((d for d in ",;\t|" if d != self.delimiter and len(names) == 1 and d in names[0]), None)
        if other is None:
            return "declare only columns that every file has, or say header => 'false'"
        named = "tab" if other == "\t" else other
        return f"the values look separated by {named}: say sep => '{named}'"

    def _names(self, line: bytes) -> list[str]:
        """The column names in a header line."""
        if not line.strip():
            return []
        options = csv.ReadOptions(encoding=self.encoding)
        return list(csv.read_csv(pa.BufferReader(line + b"\n"), options, self.parse_options()).column_names)

    def parse_options(self) -> csv.ParseOptions:
        """Arrow's options for these files."""
        return csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=True,
        )


def csv_format(options: SourceOptions) -> CsvFormat:
    """The format that a declaration's options describe."""
    encoding = options.text("encoding", "utf8", "charset") or "utf8"
    try:
        plain = "\n,".encode(encoding) == b"\n,"
    except LookupError:
        plain = False
    if not plain:
        raise options.refusal(f'encoding is "{encoding}"', "use utf-8, or another encoding that contains ASCII")
    return CsvFormat(
        delimiter=options.letter("sep", ",", "delimiter"),
        decimal=options.choice("decimal", (".", ","), "."),
        quote=options.letter("quote", '"'),
        escape=options.letter("escape", ""),
        header=options.flag("header", True),
        null=options.text("nullValue", "") or "",
        encoding=encoding,
        whole=options.flag("multiLine", False),
        drop=options.drops_malformed(),
        times=options.time_format("timestampFormat"),
        dates=options.time_format("dateFormat"),
    )


@dataclass
class CsvRows:
    """Parses blocks of rows; `names` are the columns of the rows, `found` says which are wanted.

    `level` is how carefully: 0 as declared, 1 with offsets in all times, 2 as text. It only grows: a file that needs
    care once will need it again.
    """

    stream: StreamDef
    format: CsvFormat
    names: Sequence[str]
    found: Mapping[str, str]
    wanted: Mapping[str, pa.DataType]
    report: Report | None
    given: Given = ()
    level: int = 0

    def __call__(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        """The rows of a block."""
        self._check_quotes(block, origin)
        while self.level < 2:
            try:
                return timed(self.stream, self._typed(block, origin))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                self.level += 1
        return self._texts(block, origin)

    def _check_quotes(self, block: bytes, origin: RowOrigin) -> None:
        # A block that ends within quotes would be parsed as if they were closed.
        if not isinstance(origin, FileLines) or self.format.whole or self.format.escape or not self.format.quote:
            return
        if not origin.last and block.count(self.format.quote.encode()) % 2:
            raise SourceError(
                f"{self.stream.what}: {origin.file.path}: a quoted value may span lines behind byte {origin.at}",
                hint="say multiLine => 'true' (such a file is read by one task), or quote => '' if quotes are data",
            )

    def _typed(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        forms = time_forms(self.wanted, self.format.times, self.format.dates)
        types = {n: pa.string() if n in forms else self._arrow_type(n, t) for n, t in self.wanted.items()}
        integers = _HEX.search(block) and [n for n in self.found if n in types and pa.types.is_integer(types[n])]
        types |= dict.fromkeys(integers or (), pa.string())
        table = self._read(block, types, self.format.parse_options())
        for name in integers or ():
            column = table.column(name)
            if pc.any(pc.match_substring(column, "0x", ignore_case=True)).as_py():
                parse_again()
            types[name] = self.wanted[name]
            table = table.set_column(table.column_names.index(name), name, column.cast(types[name]))
        texts = {n: t for n, t in self.wanted.items() if types[n].equals(pa.string()) and not t.equals(pa.string())}
        if not texts:
            return one_batch(table.cast(pa.schema(list(self.wanted.items()))))
        rows = np.arange(table.num_rows)
        parsed = parse_columns(self.stream, table, texts, forms, rows, origin, parse_again)
        whole = [parsed.column(n) if n in texts else table.column(n).cast(t) for n, t in self.wanted.items()]
        return one_batch(pa.table(whole, schema=pa.schema(list(self.wanted.items()))))

    def _arrow_type(self, name: str, type_: pa.DataType) -> pa.DataType:
        """The type to ask Arrow's parser for; text where it has another law or none."""
        kinds = pa.types
        if name not in self.found:
            return pa.string()
        if kinds.is_timestamp(type_) and type_.tz is None and self.level == 1:
            return pa.timestamp(type_.unit, "UTC")
        plain = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_date32, kinds.is_timestamp)
        return type_ if any(check(type_) for check in plain) or kinds.is_decimal128(type_) else pa.string()

    def _texts(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        skipped: list[tuple[int, str]] = []
        options = self.format.parse_options()

        def skip(row: csv.InvalidRow) -> str:
            skipped.append((row.number - 1, f"{row.actual_columns} values, {row.expected_columns} expected"))
            return "skip"

        options.invalid_row_handler = skip
        table = self._read(block, dict.fromkeys(self.wanted, pa.binary()), options)
        rows = np.delete(np.arange(table.num_rows + len(skipped)), [r for r, _ in skipped])
        table, rows, unread = _decode(table, rows)
        for row, why in sorted(skipped + unread):
            refuse(self.stream, origin.malformed(row, why), self.report)
        forms = time_forms(self.wanted, self.format.times, self.format.dates)
        return parse_columns(self.stream, self._with_points(table), self.wanted, forms, rows, origin, self.report)

    def _with_points(self, texts: pa.Table) -> pa.Table:
        """Numbers with a decimal point; a point that was there (of thousands) becomes what no number has."""
        for at, (name, type_) in enumerate(self.wanted.items()):
            if self.format.decimal != "." and (pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
                marked = pc.replace_substring(texts.column(name), ".", "'")
                texts = texts.set_column(at, name, pc.replace_substring(marked, self.format.decimal, "."))
        return texts

    def _read(self, block: bytes, types: Mapping[str, pa.DataType], options: csv.ParseOptions) -> pa.Table:
        """The wanted columns of a block, named as declared."""
        if not block.strip():
            return pa.schema(list(types.items())).empty_table()
        # Numbers as names: those in a header may be there twice.
        places = {have: str(i) for i, have in reversed(list(enumerate(self.names)))}
        asked = {n: places[have] for n, have in self.found.items()}
        convert = csv.ConvertOptions(
            column_types={place: types[n] for n, place in asked.items()},
            include_columns=list(asked.values()),
            null_values=[self.format.null],
            decimal_point=self.format.decimal,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(
            column_names=[str(i) for i in range(len(self.names))],
            block_size=len(block) + 2,
            use_threads=False,
            encoding=self.format.encoding,
        )
        if not block.endswith(b"\n"):
            block += b"\n"  # else an empty last value counts as quoted if the one before it is
        table = csv.read_csv(pa.BufferReader(block), read, options, convert)
        columns = [
            table.column(asked[n]) if n in asked else said_by_path(self.given, n, table.num_rows) for n in self.wanted
        ]
        return pa.table(columns, names=list(self.wanted))


def _decode(table: pa.Table, rows: np.ndarray) -> tuple[pa.Table, np.ndarray, list[tuple[int, str]]]:
    """Columns of bytes as text; rows that are not UTF-8 are left out, and told apart."""
    try:
        return table.cast(pa.schema([(n, pa.string()) for n in table.column_names])), rows, []
    except pa.ArrowInvalid:
        bad = {i: n for n in table.column_names for i, v in enumerate(table.column(n).to_pylist()) if not _is_utf8(v)}
        kept = np.setdiff1d(np.arange(len(rows)), list(bad))
        unread = [(int(rows[i]), f'column "{name}" is not UTF-8') for i, name in bad.items()]
        return _decode(table.take(kept), rows[kept])[0], rows[kept], unread


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
