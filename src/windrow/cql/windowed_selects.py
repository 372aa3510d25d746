"""Windows of time on a view or subquery that only selects and projects one stream: put on the stream below.

    CREATE VIEW error AS SELECT host, ts AS at FROM log WHERE level = 'ERROR'
    FROM TUMBLE(error, at, '1 min')  ->  FROM (SELECT host, ts AS at, window_start, window_end
                                               FROM TUMBLE(log, ts, '1 min') WHERE level = 'ERROR') error

Law: which rows a window of time holds depends on each row's own time, so selecting and projecting rows commutes with
it. Windows of rows and sessions do not: they look at the rows that are left.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.bounds import NAMES as BOUNDS
from windrow.cql.dialect import WINDOW, StreamItems
from windrow.cql.expressions import find_aggregate
from windrow.cql.nesting import CommonTable, common_table, put_common_table
from windrow.cql.proctime import place_clock
from windrow.cql.scope import INSTANT, has_subquery
from windrow.cql.shapes import query_in, sources_of, unwrap, window_of
from windrow.cql.windows import WindowClause
from windrow.cql.wstream import INTERNAL
from windrow.plan.nodes import WindowKind

_PLAIN = frozenset(("kind", "hint", "expressions", "from_", "where"))
"""What a SELECT may have that only selects and projects."""


def push_windows(tree: exp.Expr, catalog: Catalog) -> None:
    """Put the windows of views and subqueries on the streams below where that means the same, in the tree itself."""
    for source in list(tree.find_all(exp.Table, exp.Subquery)):
        if (clause := window_of(source)) is not None:
            put_window(source, clause, catalog)


def put_window(source: exp.Expr, clause: WindowClause, catalog: Catalog) -> bool:
    """Put a window on the stream below an item of FROM, if it can be; the item then has none."""
    if query_in(source) is None or clause.kind in (WindowKind.ROWS, WindowKind.SESSION):
        return False
    found = _below(source, clause, catalog)
    if found is None:
        return False
    stream, time, selects = found
    for item in (source, source.args.get("alias")):
        if item is not None:
            item.meta.pop(WINDOW, None)
    stream.meta[WINDOW] = replace(clause, time=None if clause.time is None else (time, clause.time[1]))
    for select in selects if clause.aligned else ():
        if not any(map(_is_star, select.expressions)):
            select.set("expressions", [*select.expressions, *map(exp.column, BOUNDS)])
    return True


def _below(source: exp.Expr, clause: WindowClause, catalog: Catalog) -> tuple[exp.Table, str, list[exp.Select]] | None:
    """The stream that the window would be on, its time column, and the SELECTs in between."""
    wanted, selects = clause.time[0] if clause.time is not None else None, []
    while (query := query_in(source)) is not None:
        select = unwrap(query)
        if not isinstance(select, exp.Select) or not _is_plain(select, catalog):
            return None
        if common_table(source) is not None:
            select = unwrap(_own_copy(source, clause))
            assert isinstance(select, exp.Select)
        selects.append(select)
        (source,) = sources_of(select)
        stream = catalog.streams.get(source.name.lower()) if query_in(source) is None else None
        if stream is not None and wanted is not None and clause.aligned:
            place_clock(select, wanted, stream)
        wanted = None if wanted is None else _written(select, wanted)
        if window_of(source) is not None or (clause.time is not None and wanted is None):
            return None
    stream = catalog.streams.get(source.name.lower()) if isinstance(source, exp.Table) else None
    if stream is None or (wanted is not None and wanted.lower() not in (stream.time.lower(), INSTANT)):
        return None
    assert isinstance(source, exp.Table)
    return source, stream.time, selects


def _own_copy(table: exp.Expr, clause: WindowClause) -> exp.Expr:
    """The query of WITH that a table names, as one that nobody else reads."""
    query = common_table(table)
    assert isinstance(table, exp.Table)
    assert query is not None
    cte, copied = query.parent, query.copy()
    assert isinstance(cte, exp.CTE)
    assert isinstance(cte.parent, exp.With)
    shown = table.alias or table.name
    name = exp.to_identifier(f"{table.name} {clause.text} {clause.offset}", quoted=True)
    own = exp.CTE(this=copied, alias=exp.TableAlias(this=name))
    every = list(cte.parent.expressions)
    every.insert(every.index(cte) + 1, own)
    cte.parent.set("expressions", every)
    alias = table.args.get("alias") or exp.TableAlias()
    alias.set("this", exp.to_identifier(shown, quoted=True))
    table.set("this", name.copy())
    table.set("alias", alias)
    put_common_table(table, CommonTable(copied))
    return copied


def _is_plain(select: exp.Select, catalog: Catalog) -> bool:
    where = select.args.get("where")
    given = {k for k, v in select.args.items() if v}
    return (
        given <= _PLAIN
        and not select.meta.get(INTERNAL)  # what a WSTREAM appends stays when its rows have left
        and len(sources_of(select)) == 1
        and not any(isinstance(i, StreamItems) for i in select.expressions)
        and not any(i.find(exp.Window, exp.Query) or find_aggregate(i, catalog) for i in select.expressions)
        and (where is None or not has_subquery(where.this))
    )


def _written(select: exp.Select, name: str) -> str | None:
    """The column that a SELECT shows under a name, if it is one as it is."""
    for item in select.expressions:
        if isinstance(item.unalias(), exp.Column) and not _is_star(item) and item.alias_or_name.lower() == name.lower():
            return str(item.unalias().name)
    return name if any(_is_star(i) for i in select.expressions) else None


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
