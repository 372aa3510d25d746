"""The rows of `windrow bench ingest`: a table by number of columns, its files in every format, and bare reads of them.

A stream is (ts TIMESTAMP, k BIGINT, v DOUBLE, w BIGINT, c4 ...): `RATE` rows a second of event time, 1,000 keys, `w`
evenly in [0, 1000) for conditions of any selectivity. A last file holds one row far ahead, so that time passes every
window; every engine gets it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json, parquet

RATE = 100_000
BEGIN_US = 10**15  # Spark's first watermark is 1970, and what comes not after it is late
FAR_US = 3_600 * 10**6
FORMATS = ("parquet", "csv", "json")
ROW_GROUP = 500_000


def table(rows: int, columns: int = 4, seed: int = 1, begin_us: int = 0, keys: int = 1000) -> pa.Table:
    """Rows in the order of their times."""
    rng = np.random.default_rng([seed, begin_us])
    ts = BEGIN_US + begin_us + np.arange(rows) * (10**6 // RATE)
    made = {
        "ts": pa.array(ts, pa.timestamp("us")),
        "k": pa.array(rng.integers(0, keys, rows)),
        "v": pa.array(np.round(rng.random(rows) * 1000, 3)),
        "w": pa.array(rng.integers(0, 1000, rows)),
    }
    for i in range(4, columns):
        made[f"c{i}"] = pa.array(rng.integers(0, 10**6, rows) / (1 if i % 2 else 8))
    return pa.table(made)


def declaration(rows: pa.Table) -> str:
    """The columns of a stream of these rows, and its time."""
    kinds = {pa.timestamp("us"): "TIMESTAMP", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
    return f"({', '.join(f'{f.name} {kinds[f.type]}' for f in rows.schema)}) TIMESTAMP BY ts"


def last_row(rows: pa.Table) -> pa.Table:
    """One row an hour behind the last, of a key that no other row has."""
    values = {f.name: pa.array([-1]).cast(f.type) for f in rows.schema if f.name != "ts"}
    far = rows["ts"][-1].value + FAR_US
    return pa.table({"ts": pa.array([far], pa.timestamp("us")), **values})


def write(rows: pa.Table, place: Path, form: str, files: int = 1) -> Path:
    """A directory with the rows in so many files, and the last row in one of its own; modified in order."""
    place.mkdir(parents=True)
    step = -(-rows.num_rows // files)
    parts = [rows.slice(n * step, step) for n in range(files)] + [last_row(rows)]
    for number, part in enumerate(parts):
        path = place / f"{number:05d}.{form}"
        _write_file(part, path)
        os.utime(path, (number + 1, number + 1))
    return place


def _write_file(rows: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(rows, path, row_group_size=ROW_GROUP)
    elif path.suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        with open(path, "wb") as file:
            for batch in rows.to_batches(100_000):
                file.writelines(line.as_buffer() for line in pc.binary_join_element_wise(lines(batch), "", "\n"))


def lines(batch: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object."""
    parts: list[pa.Array | str] = []
    for i, field in enumerate(batch.schema):
        quote = '"' if pa.types.is_timestamp(field.type) else ""
        parts += [f'{"," if i else "{"}"{field.name}":{quote}', batch.column(i).cast(pa.string()), quote]
    return pc.binary_join_element_wise(*parts, "}", "")


def bare(place: Path, columns: Sequence[str]) -> int:
    """Read these columns of all files with pyarrow and all its threads; the number of rows.

    JSON has no projection, and its reader no schema for times written like this: they stay text, which flatters it.
    """
    return sum(_bare_file(path, columns) for path in sorted(place.iterdir()))


def _bare_file(path: Path, columns: Sequence[str]) -> int:
    if path.suffix == ".parquet":
        return int(parquet.read_table(path, columns=list(columns)).num_rows)
    if path.suffix == ".csv":
        wanted = csv.ConvertOptions(include_columns=list(columns))
        return int(csv.read_csv(path, convert_options=wanted).num_rows)
    return int(json.read_json(path, json.ReadOptions(block_size=8 << 20)).num_rows)


class Topic:
    """The rows as JSON, in order, in topics of four partitions: of a broker, or of librdkafka's mock cluster.

    There a partition keeps 5 MB, so rows lie in many topics.
    """

    KEEP = 4 << 20

    def __init__(self, rows: pa.Table, servers: str | None = None) -> None:
        from confluent_kafka import Producer

        mock = {"test.mock.num.brokers": 1, "bootstrap.servers": "ignored:1"}
        where = mock if servers is None else {"bootstrap.servers": servers}
        self.producer = Producer({**where, "log_level": 0, "queue.buffering.max.messages": 2_000_000})
        found = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{b.host}:{b.port}" for b in found)
        messages = [*self._messages(rows), *self._messages(last_row(rows))]
        quarter = sum(map(len, messages)) // 4 + 32 * len(messages) // 4 + 1000
        self.topics = self._send(messages, self.KEEP if servers is None else quarter)

    def _messages(self, rows: pa.Table) -> Iterator[bytes]:
        for batch in rows.to_batches(100_000):
            yield from (m.as_buffer().to_pybytes() for m in lines(batch))

    def _send(self, messages: Sequence[bytes], keep: int) -> list[str]:
        topics, room, at = ["t0"], keep, 0
        for message in messages:
            room -= len(message) + 32
            if room < 0:
                at, room = at + 1, keep
                if at % 4 == 0:
                    topics.append(f"t{len(topics)}")
                    self.producer.flush(60)
            self.producer.produce(topics[-1], value=message, partition=at % 4)
            self.producer.poll(0)
        assert self.producer.flush(60) == 0
        return topics
