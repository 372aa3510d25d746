"""Esper: all queries as statements of one runtime, in a JVM of its own, a row at a time on the clock of the rows.

The nearest thing to windrow in one process: EPL has sliding windows, joins of them, and a clock that the caller moves.
A stream joined with tables is one statement that all queries over the same tables read, as a user would write it; the
tables are kept whole, and Esper indexes them. Rows lie in memory-mapped columns, so that reading costs next to nothing.

Answers are exact by the clock (`EsperJob.java`): a row of time t is sent at 2 t, an answer for t asked for at 2 t + 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from windrow.errors import RuntimeFailure, UnsupportedError
from windrow_bench.peers.answers import PeerResult, settle
from windrow_bench.peers.dialect import flat, translate
from windrow_bench.peers.environment import jars
from windrow_bench.peers.feed import Feed, instants
from windrow_bench.peers.queries import PeerQuery, Selection, SlidingAggregate, WindowJoin

VERSION = "8.9.0"
ARTIFACTS = tuple(("com.espertech", name, VERSION) for name in ("esper-compiler", "esper-runtime"))
HEAP = "4g"
UNIT = "microseconds"  # of the runtime's clock, whatever the rows count
PROGRAM = Path(__file__).with_name("EsperJob.java")


class Esper:
    """Esper in a JVM with so much memory; `say` hears of the first download."""

    name = "Esper"

    def __init__(self, heap: str = HEAP, say: Callable[[str], None] = lambda _: None) -> None:
        from windrow.spark.session import check_java

        check_java()
        found = jars(f"esper-{VERSION}", ARTIFACTS, say)
        assert found is not None
        self.java = ["java", f"-Xmx{heap}", "-cp", f"{found}/*", str(PROGRAM)]

    def run(
        self, queries: Sequence[PeerQuery], files: str | Path, tables: Mapping[str, pa.Table] | None = None
    ) -> PeerResult:
        """Run the queries together over the streams that `write_streams` put into `files`."""
        feed = Feed.of(files, tables or {}, queries[0].time)
        with tempfile.TemporaryDirectory(prefix="windrow-esper-") as place:
            said = self._play(Module(queries, feed, Path(place)), Path(place))
            found = [_answer(Path(place) / f"answer-{i}.csv", said["types"][i]) for i in range(len(queries))]
        answers = {q.name: settle(t, q, feed) for q, t in zip(queries, found, strict=True)}
        about = {"esper": VERSION, "delays_us": [ns / 1000 for ns in said["delays"]]}
        return PeerResult(said["seconds"], answers, {k: said[k] for k in ("plan", "run")}, about)

    def _play(self, module: Module, place: Path) -> dict[str, Any]:
        """Run the program: first a few rows that load its classes, then all."""
        for name, rows in (("warm", 1000), ("job", None)):
            (place / f"{name}.json").write_text(json.dumps(module.document(rows)), encoding="utf-8")
        done = subprocess.run([*self.java, str(place)], capture_output=True, text=True, check=False)
        if done.returncode or not (place / "said.json").exists():
            said = [line for line in done.stderr.splitlines() if "Exception" in line] or ["it said nothing"]
            raise RuntimeFailure("Esper did not run the queries", detail=said[0][:500])
        return dict(json.loads((place / "said.json").read_text(encoding="utf-8")))


_ARROW = {"Long": pa.int64(), "Integer": pa.int32(), "Double": pa.float64(), "Boolean": pa.bool_()}


def _answer(path: Path, types: Sequence[tuple[str, str]]) -> pa.Table:
    schema = pa.schema([(name, _ARROW.get(kind, pa.string())) for name, kind in types])
    if not path.stat().st_size:
        return schema.empty_table()
    convert = pacsv.ConvertOptions(column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False)
    return pacsv.read_csv(path, pacsv.ReadOptions(column_names=schema.names), convert_options=convert)


class Module:
    """The text of all statements, and their rows as files."""

    def __init__(self, queries: Sequence[PeerQuery], feed: Feed, place: Path) -> None:
        self.queries, self.feed, self.place = queries, feed, place
        self.declarations: dict[str, str] = {}
        self.streams: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.statements = [self._statement(q) for q in queries]

    def document(self, rows: int | None = None) -> dict[str, Any]:
        """What the program reads; with only so many rows of each stream."""
        streams = [s | {"rows": s["rows"] if rows is None else min(rows, s["rows"])} for s in self.streams.values()]
        return {
            "modules": [";\n".join(self.declarations.values())],
            "statements": ";\n".join(self.statements),
            "streams": streams,
            "tables": list(self.tables.values()),
            "slides": [q.slide if isinstance(q, SlidingAggregate) else 0 for q in self.queries],
            "until": self.feed.until if rows is None else 0,
        }

    def _statement(self, query: PeerQuery) -> str:
        for stream in dict.fromkeys(s.lower() for s in query.streams.values()):
            if stream not in self.streams:
                found = self.feed.streams[stream]
                self.streams[stream] = self._relation("s", stream, found.data.to_table(), found.time)
        if isinstance(query, Selection):
            raise UnsupportedError("selections on Esper")
        text = self._aggregate(query) if isinstance(query, SlidingAggregate) else self._join(query)
        return f"@name('{query.name}') @EventRepresentation(objectarray) {text}"

    def _relation(self, kind: str, name: str, table: pa.Table, time: str | None = None) -> dict[str, Any]:
        """Declare a relation with flattened columns, and write its rows."""
        type_ = f"{kind}_{name}"
        folder = self.place / type_
        folder.mkdir()
        kinds = []
        for number, column in enumerate(table.columns):
            values = instants(column) if pa.types.is_timestamp(column.type) else column
            kinds.append(_written(values, folder, number, table.column_names[number]))
        if time is not None:
            instants(table[time]).to_numpy().astype("<i8").tofile(folder / "times")
        named = zip(table.column_names, kinds, strict=True)
        columns = ", ".join(f"{flat(name, c)} {k}" for c, k in named)
        self.declarations[type_] = f"@public @buseventtype create objectarray schema {type_} ({columns})"
        return {"type": type_, "rows": len(table), "columns": kinds, "timed": time is not None}

    def _aggregate(self, query: SlidingAggregate) -> str:
        columns = self.feed.columns(query)
        items = [f"{_epl(k, columns)} as {k.rpartition('.')[2]}" for k in query.keys]
        items += [f"{_epl(sql, columns)} as {name}" for name, sql in query.aggregates.items()]
        where = f"({_widened(_epl(query.where, columns))})" if query.where else ""
        group = f" group by {', '.join(_epl(k, columns) for k in query.keys)}" if query.keys else ""
        return f"select {', '.join(items)} from {self._source(query)}{where}#time({2 * query.range}L {UNIT}){group}"

    def _source(self, query: SlidingAggregate) -> str:
        """The stream, or the stream that a join with tables makes, once for all queries that have the same."""
        stream = query.stream.lower()
        if not query.tables:
            return f"s_{stream}"
        relations = {f"s_{stream}": self.streams[stream]}
        tests = []
        for lookup in query.tables:
            table = lookup.table.lower()
            if table not in self.tables:
                self.tables[table] = self._relation("l", table, self.feed.tables[table])
            relations[f"l_{table}"] = self.tables[table]
            tests += [f"s_{stream}.{flat(stream, a)} = l_{table}.{flat(table, b)}" for a, b in lookup.on.items()]
        made = "j_" + "_".join(relations)
        columns = [c for alias, has in self.feed.columns(query).items() for c in (flat(alias, x) for x in has)]
        if made not in self.declarations:
            kinds = [k for r in relations.values() for k in r["columns"]]
            typed = ", ".join(f"{c} {k}" for c, k in zip(columns, kinds, strict=True))
            self.declarations[made] = f"@public create objectarray schema {made} ({typed})"
            kept = ", ".join(f"l_{t.table.lower()}#keepall as l_{t.table.lower()}" for t in query.tables)
            self.declarations[f"{made} rows"] = (
                f"insert into {made} select {', '.join(columns)} from s_{stream} as s_{stream} unidirectional, "
                f"{kept} where {' and '.join(tests)}"
            )
        return made

    def _join(self, query: WindowJoin) -> str:
        columns = self.feed.columns(query)
        owners = {w.name.lower(): w.stream.lower() for w in query.windows}

        def placed(sql: str) -> str:
            """`alias__column`, as the window `alias` has it."""
            return re.sub(r"\b(\w+?)__(\w+)", lambda m: f"w_{m[1]}.{flat(owners[m[1]], m[2])}", _epl(sql, columns))

        parts = [f"s_{w.stream.lower()}#time({2 * w.range}L {UNIT}) as w_{w.name.lower()}" for w in query.windows]
        first, *others = (placed(f"{w.name}.{query.key}") for w in query.windows)
        tests = [f"{first} = {other}" for other in others] + ([f"({placed(query.where)})"] if query.where else [])
        items = ", ".join(f"{placed(sql)} as {name}" for name, sql in query.select.items())
        return f"select {items} from {', '.join(parts)} where {' and '.join(tests)}"


def _epl(sql: str, columns: Mapping[str, Sequence[str]]) -> str:
    """An expression as Esper reads it.

    >>> _epl("ABS(t.a) > 1 AND b = 'x'", {"t": ["a", "b"]})
    "Math.abs(t__a) > 1 AND t__b = 'x'"
    """
    return translate(sql, columns, "esper").replace("`", "").replace("ABS(", "Math.abs(")


def _widened(filter_: str) -> str:
    """A filter in which columns that are compared with fractions are doubles: Esper's filters convert nothing.

    >>> _widened("t__b AND t__n > 3.5")
    't__b AND t__n * 1.0 > 3.5'
    """
    return re.sub(r"(\w+__\w+) ([<>]=?) (?=-?\d+\.\d)", r"\1 * 1.0 \2 ", filter_)


def _written(column: pa.ChunkedArray, folder: Path, number: int, name: str) -> str:
    """Write a column; its type for Esper."""
    array, kind = column.combine_chunks(), column.type
    if array.null_count:
        np.asarray(array.is_null()).astype(np.uint8).tofile(folder / f"{number}.nulls")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        coded = array.dictionary_encode()
        words = json.dumps(coded.dictionary.to_pylist())
        (folder / f"{number}.words").write_text(words, encoding="utf-8")
        coded.indices.fill_null(0).to_numpy().astype("<i4").tofile(folder / f"{number}.values")
        return "string"
    for test, epl, dtype in (
        (pa.types.is_boolean, "boolean", np.uint8),
        (pa.types.is_integer, "long", "<i8"),
        (pa.types.is_floating, "double", "<f8"),
    ):
        if test(kind):
            np.asarray(array.fill_null(0 if epl != "boolean" else False)).astype(dtype).tofile(
                folder / f"{number}.values"
            )
            return epl
    raise UnsupportedError(f"Esper is not given columns of type {kind}", detail=f"column {name}")
