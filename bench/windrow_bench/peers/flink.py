"""Flink SQL: all queries in one statement set on a local cluster, in streaming mode, in an interpreter of its own.

Flink shares the scan and equal joins between the statements; windows and aggregates are each statement's own. The pip
package reads CSV and JSON but not Parquet, so the rows are written as CSV first, which is not timed; reading them is.
Large streams become one file for each parallel reader, dealt row by row so that every reader moves through the same
times.

Sliding windows are the HOP table function, aggregated once before the shuffle and once after it. Its windows are whole
slides, and then overlapping ones share slices; a range that is not a multiple of the slide is the next longer window
with a condition that cuts its beginning, for which Flink copies each row into its windows. (The older grouped HOP takes
any range, but its windows begin at multiples of the slide where ours end there: other answers.)

A join of n windows is a chain of interval joins: rowtime bounds let state expire, microseconds decide.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from windrow.errors import RuntimeFailure, UnsupportedError
from windrow_bench.peers import flink_job
from windrow_bench.peers.answers import PeerResult, settle
from windrow_bench.peers.dialect import flat, translate
from windrow_bench.peers.environment import VERSION, clean, interpreter
from windrow_bench.peers.feed import TICK_US, Feed, Stream, instants
from windrow_bench.peers.queries import Lookup, PeerQuery, Selection, SlidingAggregate, WindowJoin

ROWS_PER_READER = 100_000  # smaller streams are one file: a reader could finish before the next one starts
ALWAYS_MS = -60_000_000_000_000  # before every row: the one version of a static table


class Flink:
    """Flink SQL on a local cluster with `parallelism` slots; `say` hears of a long first install."""

    name = "Flink SQL"

    def __init__(
        self,
        parallelism: int = 2,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        from windrow.spark.session import check_java

        check_java()
        self.python = interpreter(say)
        self.parallelism = parallelism
        self.settings = {
            "parallelism.default": str(parallelism),
            "table.local-time-zone": "UTC",
            "pipeline.object-reuse": "true",
            **(settings or {}),
        }

    def run(
        self, queries: Sequence[PeerQuery], files: str | Path, tables: Mapping[str, pa.Table] | None = None
    ) -> PeerResult:
        """Run the queries together over the streams that `write_streams` put into `files`."""
        feed = Feed.of(files, tables or {}, queries[0].time)
        with tempfile.TemporaryDirectory(prefix="windrow-flink-") as place:
            job = Job(queries, feed, Path(place), self.parallelism)
            said = self._submit(job.document(_memory(len(queries)) | self.settings), Path(place))
            answers = {
                q.name: settle(_answer(job.results(i), said["types"][i], q.ticks), q, feed)
                for i, q in enumerate(queries)
            }
        about = {"flink": VERSION, "parallelism": self.parallelism, "settings": self.settings}
        return PeerResult(said["seconds"], answers, {k: said[k] for k in ("start", "plan", "job")}, about)

    def _submit(self, document: Mapping[str, Any], place: Path) -> dict[str, Any]:
        (place / "job.json").write_text(json.dumps(document), encoding="utf-8")
        command = [str(self.python), str(Path(flink_job.__file__)), str(place / "job.json"), str(place / "said.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean(), cwd=place)
        said = json.loads((place / "said.json").read_text(encoding="utf-8")) if (place / "said.json").exists() else {}
        if done.returncode or "error" in said or not said:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeFailure("Flink did not run the queries", detail=said.get("error", last))
        return dict(said)


def _memory(statements: int) -> dict[str, str]:
    """Buffers for every window aggregate and every channel; Flink's defaults are for a statement or two."""
    return {
        "taskmanager.memory.managed.size": f"{max(512, 32 * statements)}mb",
        "taskmanager.memory.network.min": f"{max(256, 8 * statements)}mb",
        "taskmanager.memory.network.max": f"{max(256, 8 * statements)}mb",
    }


def _answer(directory: Path, types: Sequence[Sequence[str]], ticks: bool) -> pa.Table:
    """The result files of a query, with `_ts` as int64."""
    schema = pa.schema([(name, _arrow(kind)) for name, kind in types])
    paths = sorted(p for p in directory.rglob("*") if p.is_file() and p.stat().st_size) if directory.exists() else []
    parts = [_read(path, schema) for path in paths]
    table = pa.concat_tables([schema.empty_table(), *parts])
    if pa.types.is_timestamp(table.schema.field("_ts").type):  # the end of a window
        ts = instants(table["_ts"])
        return table.set_column(0, "_ts", pc.divide(ts, TICK_US) if ticks else ts)
    return table


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    convert = pacsv.ConvertOptions(column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False)
    return pacsv.read_csv(path, pacsv.ReadOptions(column_names=schema.names), convert_options=convert)


_ARROW = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP(3)": pa.timestamp("ms"),
}


def _arrow(kind: str) -> pa.DataType:
    if kind.startswith("DECIMAL"):
        return pa.float64()
    return _ARROW.get(kind, pa.string())


# -- the job: files, declarations and statements ---------------------------------------------------------------------


class Job:
    """What the script in the other interpreter executes."""

    def __init__(self, queries: Sequence[PeerQuery], feed: Feed, place: Path, parallelism: int) -> None:
        self.queries, self.feed, self.place, self.parallelism = queries, feed, place, parallelism
        self.declarations: dict[str, str] = {}
        self.statements = [self._statement(i, q) for i, q in enumerate(queries)]

    def results(self, number: int) -> Path:
        return self.place / "results" / str(number)

    def document(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return {
            "settings": dict(settings),
            "declarations": list(self.declarations.values()),
            "statements": self.statements,
            "results": [str(self.results(i)) for i in range(len(self.queries))],
            "scratch": str(self.place / "warm"),
        }

    def _statement(self, number: int, query: PeerQuery) -> str:
        for name in query.streams.values():
            self._declare_stream(self.feed.streams[name.lower()], query.ticks)
        if isinstance(query, SlidingAggregate):
            return self._aggregate(number, query)
        return self._selection(query) if isinstance(query, Selection) else self._join(query)

    def _declare_stream(self, stream: Stream, ticks: bool) -> None:
        key = f"s_{stream.name}"
        if key in self.declarations:
            return
        self._write_stream(stream)
        time = stream.time.lower()
        columns = [f"`{f.name.lower()}` {_flink(f.type) if f.name != stream.time else 'BIGINT'}" for f in stream.schema]
        ms = f"`{time}` - 1" if ticks else f"(`{time}` + 999) / 1000 - 1"
        self.declarations[key] = (
            f"CREATE TABLE `{key}` ({', '.join(columns)}, `_rt` AS TO_TIMESTAMP_LTZ({ms}, 3), "
            # The watermark says that nothing at or before it will follow; equal times do.
            f"WATERMARK FOR `_rt` AS `_rt` - INTERVAL '0.001' SECOND) WITH ('connector' = 'filesystem', "
            f"'path' = '{self.place / key}', 'format' = 'csv', 'csv.null-literal' = '')"
        )

    def _write_stream(self, stream: Stream) -> None:
        table = stream.data.to_table()
        at = table.schema.get_field_index(stream.time)
        table = table.set_column(at, stream.time, instants(table[stream.time]))
        files = self.parallelism if len(table) >= ROWS_PER_READER * self.parallelism else 1
        directory = self.place / f"s_{stream.name}"
        directory.mkdir(parents=True)
        for number in range(files):
            dealt = table if files == 1 else table.take(pa.array(range(number, len(table), files)))
            pacsv.write_csv(dealt, directory / f"part-{number}.csv", pacsv.WriteOptions(include_header=False))

    # -- aggregates

    def _aggregate(self, number: int, query: SlidingAggregate) -> str:
        unit = TICK_US if query.ticks else 1
        columns = self.feed.columns(query)
        self.declarations[f"v_{number}"] = f"CREATE TEMPORARY VIEW `v_{number}` AS {self._input(query)}"
        keys = [(translate(k, columns, "flink"), k.rpartition(".")[2]) for k in query.keys]
        items = ["window_end AS `_ts`", *(f"{sql} AS `{name}`" for sql, name in keys)]
        items += [f"{translate(sql, columns, 'flink')} AS `{name}`" for name, sql in query.aggregates.items()]
        cut = -query.range % query.slide
        slide, whole = _interval(query.slide * unit), _interval((query.range + cut) * unit)
        source = f"TABLE(HOP(TABLE `v_{number}`, DESCRIPTOR(`_rt`), {slide}, {whole}))"
        inside = f" WHERE CAST(`_rt` AS TIMESTAMP(3)) >= window_start + {_interval(cut * unit)}" if cut else ""
        group = ", ".join(["window_start", "window_end", *(sql for sql, _ in keys)])
        return f"SELECT {', '.join(items)} FROM {source}{inside} GROUP BY {group}"

    def _selection(self, query: Selection) -> str:
        columns = self.feed.columns(query)
        items = [f"`{flat(query.stream, query.time)}` AS `_ts`"]
        items += [f"{translate(sql, columns, 'flink')} AS `{name}`" for name, sql in query.select.items()]
        return f"SELECT {', '.join(items)} FROM ({self._input(query)})"

    def _input(self, query: SlidingAggregate | Selection) -> str:
        """The stream, joined with its tables, flattened and filtered."""
        columns = self.feed.columns(query)
        alias = query.stream.lower()
        items = [f"t.`{c}` AS `{flat(alias, c)}`" for c in columns[alias]]
        parts = [f"`s_{alias}` AS t"]
        for number, lookup in enumerate(query.tables):
            if not lookup.on:  # every row with every row: event time is lost, which a selection does not need
                parts.append(f"CROSS JOIN `{self._declare_rows(lookup)}` AS l{number}")
                items += [f"l{number}.`{c}` AS `{flat(lookup.table, c)}`" for c in columns[lookup.table.lower()]]
                continue
            source, several = self._declare_table(lookup)
            tests = " AND ".join(f"t.`{a.lower()}` = l{number}.`{b.lower()}`" for a, b in lookup.on.items())
            parts.append(f"JOIN `{source}` FOR SYSTEM_TIME AS OF t.`_rt` AS l{number} ON {tests}")
            owner = f"l{number}"
            if several:
                owner = f"u{number}"
                named = ", ".join(f"`{c}`" for c in columns[lookup.table.lower()])
                parts.append(f"CROSS JOIN UNNEST(l{number}.`_rows`) AS {owner}({named})")
            items += [f"{owner}.`{c}` AS `{flat(lookup.table, c)}`" for c in columns[lookup.table.lower()]]
        where = f" WHERE {translate(query.where, columns, 'flink')}" if query.where else ""
        return f"SELECT * FROM (SELECT t.`_rt` AS `_rt`, {', '.join(items)} FROM {' '.join(parts)}){where}"

    def _declare_rows(self, lookup: Lookup) -> str:
        """A table without a version."""
        name = lookup.table.lower()
        key, table = f"l_{name}", self.feed.tables[name]
        if key not in self.declarations:
            columns = ", ".join(f"`{f.name.lower()}` {_flink(f.type)}" for f in table.schema)
            _write_table(
                table.rename_columns([c.lower() for c in table.column_names]), None, self.place / f"{key}.json"
            )
            self.declarations[key] = (
                f"CREATE TABLE `{key}` ({columns}) WITH ('connector' = 'filesystem', "
                f"'path' = '{self.place / key}.json', 'format' = 'json')"
            )
        return key

    def _declare_table(self, lookup: Lookup) -> tuple[str, bool]:
        """A table with one version, by its key; whether several rows share a key, and so stand in an array."""
        name, by = lookup.table.lower(), [b.lower() for b in lookup.on.values()]
        table = self.feed.tables[name]
        table = table.rename_columns([c.lower() for c in table.column_names])
        for column in by:
            table = table.filter(pc.is_valid(table[column]))
        several = len(table.group_by(by).aggregate([])) < len(table)
        key = f"l_{name}_{'_'.join(by)}"
        if key not in self.declarations:
            columns = [f"`{f.name}` {_flink(f.type)}" for f in table.schema]
            _write_table(table, by if several else None, self.place / f"{key}.json")
            if several:
                columns = [c for c in columns if c.split("`")[1] in by] + [f"`_rows` ARRAY<ROW<{', '.join(columns)}>>"]
            self.declarations[key] = (
                f"CREATE TABLE `{key}` ({', '.join(columns)}, `_from` AS TO_TIMESTAMP_LTZ({ALWAYS_MS}, 3), "
                f"PRIMARY KEY ({', '.join(f'`{b}`' for b in by)}) NOT ENFORCED, WATERMARK FOR `_from` AS `_from`) "
                f"WITH ('connector' = 'filesystem', 'path' = '{self.place / key}.json', 'format' = 'json')"
            )
        return key, several

    # -- joins

    def _join(self, query: WindowJoin) -> str:
        columns = self.feed.columns(query)
        unit, time = TICK_US if query.ticks else 1, query.time.lower()
        parts, tests = [], []
        for number, window in enumerate(query.windows):
            alias = window.name.lower()
            items = [f"`{c}` AS `{flat(alias, c)}`" for c in columns[alias]]
            parts.append(
                f"(SELECT `_rt` AS `{flat(alias, '_rt')}`, {', '.join(items)} FROM `s_{window.stream.lower()}`)"
            )
            for other in query.windows[:number]:
                mine, then = flat(alias, time), flat(other.name, time)
                tests.append(f"`{mine}` - `{then}` < {other.range} AND `{then}` - `{mine}` < {window.range}")
            if number:
                first = query.windows[0]
                rt, rt0 = flat(alias, "_rt"), flat(first.name, "_rt")
                low, high = _interval(window.range * unit), _interval(first.range * unit)
                tests.append(f"`{rt}` BETWEEN `{rt0}` - {low} AND `{rt0}` + {high}")
                tests.append(f"`{flat(first.name, query.key)}` = `{flat(alias, query.key)}`")
        if query.where:
            tests.append(f"({translate(query.where, columns, 'flink')})")
        newest = ", ".join(f"`{flat(w.name, time)}`" for w in query.windows)
        items = [f"{translate(sql, columns, 'flink')} AS `{name}`" for name, sql in query.select.items()]
        items.insert(0, f"GREATEST({newest}) AS `_ts`")
        return f"SELECT {', '.join(items)} FROM {', '.join(parts)} WHERE {' AND '.join(tests)}"


def _interval(us: int) -> str:
    """A literal of at most 99 days.

    >>> _interval(700_001_000)
    "INTERVAL '0 00:11:40.001' DAY TO SECOND(3)"
    """
    if us % 1000:
        raise UnsupportedError(
            f"Flink cannot have a window of {us} microseconds", detail="its event time counts milliseconds"
        )
    seconds, ms = divmod(us // 1000, 1000)
    days, rest = divmod(seconds, 86_400)
    if days > 99:
        raise UnsupportedError(f"Flink cannot have a window of {days} days", detail="its literals end at 99 days")
    return f"INTERVAL '{days} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{ms:03}' DAY TO SECOND(3)"


def _flink(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "STRING"
    raise UnsupportedError(f"no column type of Flink for {kind}")


def _write_table(table: pa.Table, by: Sequence[str] | None, path: Path) -> None:
    """One JSON document per row, or per key with its rows in an array."""
    rows: list[dict[str, Any]] = table.to_pylist()
    if by is not None:
        together: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            together.setdefault(tuple(row[b] for b in by), []).append(row)
        rows = [{**dict(zip(by, key, strict=True)), "_rows": some} for key, some in together.items()]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
