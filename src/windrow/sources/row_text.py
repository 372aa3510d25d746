"""Rows written as text, from wherever they come: parsed by Arrow where it can, else by the law of casts.

Law: both ways give the same values; the second one takes what the first refuses, and names each row that is malformed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.sources.casting import sql_name, try_parse
from windrow.sources.data_file import refuse
from windrow.sources.protocol import MalformedRow, Report


class RowOrigin(Protocol):
    """Where the rows of a block come from."""

    def malformed(self, row: int, why: str) -> MalformedRow:
        """The row of that index in the block."""

    def texts(self) -> Sequence[bytes]:
        """What is written in each row."""


class RowParser(Protocol):
    """Parses blocks of rows to the wanted columns."""

    def __call__(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        """The rows of a block, without those that are malformed."""


def parse_columns(
    stream: StreamDef,
    texts: pa.Table,
    wanted: Mapping[str, pa.DataType],
    forms: Mapping[str, str],
    rows: np.ndarray,
    origin: RowOrigin,
    report: Report | None,
) -> pa.RecordBatch:
    """Columns of text to the wanted types by the law of casts; rows that do not fit are malformed.

    `rows` are the indices of the table's rows among those of the block; `forms` are formats of times by column.
    """
    good = np.ones(texts.num_rows, np.bool_)
    columns = []
    for name, type_ in wanted.items():
        text = texts.column(name)
        column = try_parse(text, type_, forms.get(name))
        columns.append(column)
        unfit = good & column.is_null().to_numpy()
        if name != stream.time:  # a row must have a time, and may lack anything else
            unfit &= text.is_valid().to_numpy()
        for index in np.flatnonzero(unfit).tolist():
            found = text[index].as_py()
            why = (
                f'column "{name}": {found!r} is not {sql_name(type_)}'
                if found is not None
                else f'column "{name}" is NULL'
            )
            refuse(stream, origin.malformed(int(rows[index]), why), report)
        good &= ~unfit
    table = pa.table(columns, schema=pa.schema(list(wanted.items())))
    return one_batch(table if good.all() else table.filter(pa.array(good)))


def timed(stream: StreamDef, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Arrow parsed them; if one has no time, the block is parsed again by who can name it."""
    if stream.time in batch.schema.names and batch.column(stream.time).null_count:
        parse_again()
    return batch


def parse_again(row: MalformedRow | None = None) -> None:
    """Let a block, of which a row may be malformed, be parsed with more care."""
    raise pa.ArrowInvalid("parse again as text")


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch."""
    found = table.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)


def time_forms(wanted: Mapping[str, pa.DataType], times: str | None, dates: str | None) -> dict[str, str]:
    """The strptime format of each wanted column that has one."""
    kinds = {
        n: times if pa.types.is_timestamp(t) else dates if pa.types.is_date(t) else None for n, t in wanted.items()
    }
    return {n: form for n, form in kinds.items() if form is not None}
