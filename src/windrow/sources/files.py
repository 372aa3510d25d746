"""Tables from files, by extension; a directory is its files in order of name.

csv and its gzip are read as text and typed afterwards, on all rows: a reader that guesses from the first block fails
on, or worse skips, what comes later. With a declared schema nothing is guessed. Cost: one pass to parse, one to type.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from windrow.errors import SourceError
from windrow.scalar_engine import connect
from windrow.sources.casting import infer_types
from windrow.sources.listing import check_name, is_hidden

DeclaredTypes = Mapping[str, pa.DataType] | None
Reader = Callable[[Path, DeclaredTypes], pa.Table]


def read_path(name: str, what: str, schema: DeclaredTypes = None, added: Collection[str] = ()) -> pa.Table:
    """Read a file, or all files of a directory, as one table; columns that were `added` are null where they lack."""
    return read_files(files_of(name, what), name, what, schema, added)


def read_files(
    files: Sequence[Path], name: str, what: str, schema: DeclaredTypes = None, added: Collection[str] = ()
) -> pa.Table:
    """Read files as one table, as above; `name`: where they are, for people."""
    tables = [read_file(p, what, schema, added) for p in files]
    if not any(t.num_columns for t in tables):
        raise SourceError(
            f"{what}: {name} holds nothing, so nobody knows its columns",
            hint="declare them: CREATE STREAM s (..., ts TIMESTAMP) TIMESTAMP BY ts",
        )
    if len(tables) == 1:
        return tables[0]
    with _alike(name, what):
        return pa.concat_tables(tables, promote_options="permissive")


def files_of(name: str, what: str) -> list[Path]:
    """A file, or the files of a directory in order of name."""
    path = Path(name)
    check_name(name, f"{what}: ")
    if not path.exists():
        raise SourceError(f"{what}: no such file: {name}", hint=_nearby(path))
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.iterdir() if p.is_file() and not is_hidden(p.name))
    if not files:
        raise SourceError(f"{what}: no files in directory {path}", hint=f"windrow reads {', '.join(READERS)}")
    for file in files:
        check_name(file.name, f"{what}: ")
    return files


def read_file(path: Path, what: str, schema: DeclaredTypes, added: Collection[str] = ()) -> pa.Table:
    """Read a file; it has the declared columns but those that were `added` later; only in JSON a key may be missing."""
    reader = _known_reader(path, what)
    with _readable(path, what):
        if reader in (_read_csv, _read_json) and _is_blank(path):
            return pa.schema([(n, pa.null()) for n in schema or ()]).empty_table()
        table = reader(path, schema)
    if schema is not None and reader is not _read_json:
        _check_columns(path, what, table.column_names, [n for n in schema if n not in added])
    return table


def read_columns(
    path: Path,
    what: str,
    schema: Mapping[str, pa.DataType],
    added: Collection[str],
    wanted: Collection[str],
    parts: range,
) -> pa.Table:
    """The wanted columns of some row groups or record batches of a file, which has the declared columns as above."""
    with _readable(path, what):
        have = _schema(path).names
        _check_columns(path, what, have, [n for n in schema if n not in added])
        asked = {n.lower() for n in wanted}
        chosen = [n for n in have if n.lower() in asked]
        return (_read_row_groups if typed(path) == "parquet" else _read_batches)(path, parts, chosen)


def columns_of(path: Path) -> dict[str, pa.DataType]:
    """The columns of a file that says them, as it has them."""
    schema = _schema(path)
    return dict(zip(schema.names, schema.types, strict=True))


@contextlib.contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        hint = _SEPARATED if "CSV parse error: " in (said := reason(error)) and " columns, got " in said else None
        raise SourceError(f"{what}: cannot read {path}", detail=said, hint=hint) from error


def check_repeated(what: str, path: str, have: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a file that has a wanted column twice: as declared or, if it is not there so, in one other case."""
    if len(exact := set(have)) == len(have):
        return
    counts, folded = Counter(have), {n.lower(): n for n in reversed(have)}
    for name in wanted:
        if counts[name if name in exact else folded.get(name.lower(), name)] > 1:
            raise SourceError(f'{what}: column "{name}" appears more than once in {path}', hint="rename one of them")


def _is_blank(path: Path) -> bool:
    """Whether a file of lines has none that hold something."""
    with pa.input_stream(str(path), compression="gzip" if path.suffix.lower() == ".gz" else None) as content:
        while chunk := content.read(1 << 16):
            if chunk.strip():
                return False
    return True


def _check_columns(path: Path, what: str, have: Sequence[str], wanted: Sequence[str]) -> None:
    found = {n.lower() for n in have}
    check_repeated(what, str(path), have, wanted)
    for name in wanted:
        if name.lower() not in found:
            raise SourceError(
                f'{what}: {path} has no column "{name}"',
                detail=f"its columns are: {', '.join(have) or 'none'}",
                hint="declare only columns that every file has",
            )


def typed(path: Path) -> str | None:
    """The format of a file that says its own types: parquet or arrow."""
    return {_read_parquet: "parquet", _read_arrow: "arrow"}.get(_reader(path))  # type: ignore[arg-type]


def kind_of(path: Path, what: str) -> str:
    """The format of a file: parquet, arrow, json or csv."""
    return typed(path) or ("json" if _known_reader(path, what) is _read_json else "csv")


def is_known(path: Path) -> bool:
    """Whether the name of a file says its format."""
    return _reader(path) is not None


def has_tabs(path: Path) -> bool:
    """Whether the name of a file says that it is csv with tabs."""
    return ".tsv" in (s.lower() for s in path.suffixes)


def without_rows(name: str, what: str) -> pa.Table | None:
    """No rows, with the columns of a file or directory whose files say their types; None where they must be read."""
    files = files_of(name, what)
    if any(typed(p) is None for p in files):
        return None
    schemas = []
    for path in files:
        try:
            schemas.append(_schema(path))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{what}: cannot read {path}", detail=reason(error)) from error
        check_repeated(what, str(path), schemas[-1].names, schemas[-1].names)
    with _alike(name, what):
        return pa.unify_schemas(schemas, promote_options="permissive").empty_table()


@contextlib.contextmanager
def _alike(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        hint = "declare the stream's columns, so that every file is read by one schema"
        raise SourceError(
            f"{what}: the files of {name} differ in their columns", detail=reason(error), hint=hint
        ) from error


def _known_reader(path: Path, what: str) -> Reader:
    reader = _reader(path)
    if reader is None:
        raise SourceError(
            f"{what}: unknown kind of file: {path}", hint=f"windrow reads {', '.join(READERS)}, and csv or json as .gz"
        )
    return reader


def _reader(path: Path) -> Reader | None:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        kind = suffixes[-2] if len(suffixes) > 1 else ""
        return READERS.get(kind) if kind in COMPRESSED else None
    return READERS.get(suffixes[-1]) if suffixes else None


def _read_csv(path: Path, schema: DeclaredTypes) -> pa.Table:
    from pyarrow import csv

    text = csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
    delimiter = "\t" if has_tabs(path) else ","
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        with csv.open_csv(str(path), parse_options=parse, convert_options=text) as head:
            names = head.schema.names
        text.column_types = dict.fromkeys(names, pa.string())
        table = csv.read_csv(str(path), parse_options=parse, convert_options=text)
    except pa.ArrowInvalid:
        # Only the reader with one thread knows the number of the row it stumbles on.
        table = csv.read_csv(str(path), csv.ReadOptions(use_threads=False), parse_options=parse, convert_options=text)
    return table if schema is not None else infer_types(table)


def _read_json(path: Path, schema: DeclaredTypes) -> pa.Table:
    """Read an array of objects or one object per line; declared columns that need it are kept as text."""
    import duckdb

    try:
        with connect(file=str(path), threads=None) as engine:
            found = engine.sql("SELECT * FROM read_json(?, sample_size = -1)", params=[str(path)])
            if schema is None:
                return found.to_arrow_table()
            declared = {n.lower(): t for n, t in schema.items()}
            columns = {
                n: _json_type(declared.get(n.lower()), str(t)) for n, t in zip(found.columns, found.types, strict=True)
            }
            return engine.sql("SELECT * FROM read_json(?, columns = ?)", params=[str(path), columns]).to_arrow_table()
    except duckdb.Error as error:
        raise pa.ArrowInvalid(reason(error)) from error


def _json_type(declared: pa.DataType | None, found: str) -> str:
    """How to read a column: as text where the guess could have changed what was written."""
    if declared is None or pa.types.is_nested(declared):
        return found
    guessed = (
        found.startswith(("DATE", "TIME", "UUID")) or pa.types.is_string(declared) or pa.types.is_temporal(declared)
    )
    return "VARCHAR" if guessed else found


def _read_parquet(path: Path, schema: DeclaredTypes) -> pa.Table:
    from pyarrow import parquet

    # Not read_table: it would add columns from the names of the directories above.
    with parquet.ParquetFile(path) as file:
        return file.read()


def _read_row_groups(path: Path, groups: range, columns: Sequence[str]) -> pa.Table:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return file.read_row_groups(list(groups), columns=columns)


def _read_batches(path: Path, batches: range, columns: Sequence[str]) -> pa.Table:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return pa.Table.from_batches([file.get_batch(i) for i in batches], file.schema).select(columns)


def _schema(path: Path) -> pa.Schema:
    """What a file of types says of them."""
    if typed(path) == "parquet":
        from pyarrow import parquet

        return parquet.read_schema(path)
    with pa.OSFile(str(path)) as source:
        try:
            return pa.ipc.open_file(source).schema
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).schema


def _read_arrow(path: Path, schema: DeclaredTypes) -> pa.Table:
    with pa.OSFile(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


def reason(error: BaseException) -> str:
    """The first line of a library's message: what follows is advice about its own options."""
    return str(error).strip().split("\n", 1)[0]


def _nearby(path: Path) -> str | None:
    """Name a file of the same stem, when the extension is what is wrong."""
    if not path.parent.is_dir():
        return f"there is no directory {path.parent} either"
    stem = path.name.split(".", 1)[0]
    near = sorted(p.name for p in path.parent.iterdir() if stem and p.name.split(".", 1)[0] == stem)
    return f"there is {near[0]} in that directory" if near else None


_SEPARATED = (
    "every line has as many values as the header; where they are not separated by commas, "
    "declare the stream FROM csv (path => '...', sep => ';')"
)
READERS: Mapping[str, Reader] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".json": _read_json,
    ".ndjson": _read_json,
    ".jsonl": _read_json,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".ipc": _read_arrow,
}
COMPRESSED = frozenset({".csv", ".tsv", ".json", ".ndjson", ".jsonl"})
