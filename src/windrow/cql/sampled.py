"""SAMPLE BY, as QuestDB writes it, as SQL.

    SELECT ts, sym, avg(p) FROM t SAMPLE BY 1h
    ->  SELECT time_bucket(INTERVAL 1 HOUR, ts) AS ts, sym, avg(p) FROM t GROUP BY time_bucket(INTERVAL 1 HOUR, ts), sym

So it is what it is over the rows of the window: all of them, or those of `t [RANGE 1 DAY]`. Time is cut at the
multiples of the length since the epoch, weeks on Mondays (ALIGN TO CALENDAR).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql.expressions import find_aggregate
from windrow.cql.sampled_syntax import MARK
from windrow.cql.scope import INSTANT, span_of
from windrow.cql.shapes import query_in, sources_of
from windrow.errors import BindingError

if TYPE_CHECKING:
    from windrow.cql.select import Binder


def expand_samples(tree: exp.Expr, binder: Binder) -> None:
    """Put what SAMPLE BY groups by in the place of its mark, in the tree itself."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if not isinstance(group, exp.Group) or len(group.expressions) != 1:
            continue
        (key,) = group.expressions
        if isinstance(key, exp.Anonymous) and key.name == MARK:
            _expand(select, group, key, binder)


def _expand(select: exp.Select, group: exp.Group, mark: exp.Anonymous, binder: Binder) -> None:
    first = sources_of(select)[0] if sources_of(select) else None
    stream = binder.catalog.streams.get(first.name.lower()) if isinstance(first, exp.Table) else None
    if stream is None or first is None or query_in(first) is not None or not pa.types.is_timestamp(stream.time_type):
        raise BindingError(
            "SAMPLE BY needs a stream whose time is a timestamp, first in FROM",
            hint="group by the time that is meant: GROUP BY time_bucket(INTERVAL 1 HOUR, t)",
            span=span_of(mark, binder.context.source),
        )
    time = exp.column(stream.time, table=first.alias or first.name)
    bucket = _bucket(mark.expressions[0].name, time, stream.time_type.tz is not None)
    items = []
    for item in select.expressions:
        column = item.unalias()
        is_time = isinstance(column, exp.Column) and column.name.lower() in (stream.time.lower(), INSTANT)
        items.append(exp.alias_(bucket.copy(), item.alias_or_name) if is_time else item)
    select.set("expressions", items)
    keys = [i.unalias().copy() for i in items if find_aggregate(i, binder.catalog) is None]
    group.set("expressions", keys if bucket in keys else [*keys, bucket])


def _bucket(length: str, time: exp.Expr, zoned: bool) -> exp.Expr:
    """The time at which a row's interval begins."""
    number, unit = length.split()
    text = "1970-01-05 00:00:00" if unit == "WEEK" else "1970-01-01 00:00:00"
    type_ = exp.DataType.build("TIMESTAMPTZ" if zoned else "TIMESTAMP", dialect="duckdb")
    origin = exp.Cast(this=exp.Literal.string(text + "+00" * zoned), to=type_)
    interval = exp.Interval(this=exp.Literal.string(number), unit=exp.var(unit))
    return exp.Anonymous(this="time_bucket", expressions=[interval, time, origin])
