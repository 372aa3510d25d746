"""A plan in words: what each operator does, close to how the query was written."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.operators.terms import SortKey
from windrow.plan import nodes as n
from windrow.plan.expr import Expr


def words(node: n.Node, unit: int = 1) -> tuple[str, str]:
    """An operator's name and its arguments; `unit` is a second in ticks, or 1.

    >>> words(n.Distinct(n.Union(())))
    ('distinct', '')
    """
    match node:
        case n.Scan(stream=name, alias=alias) | n.TableScan(table=name, alias=alias):
            kind = "scan" if isinstance(node, n.Scan) else "retroactive table" if node.retroactive else "table"
            shown = name if alias.lower() == name.lower() else f"{name} {alias}"
            return kind, f"{shown} ({', '.join(c for _, c, _ in node.columns)})"
        case n.Window(spec=spec):
            return "window", window_words(spec)
        case n.Quantise(period=period, offset=offset, before=before):
            return "quantise", f"{'just before ' if before else ''}{every(period, offset, unit)}"
        case n.WindowBounds(bounds=bounds, period=period, offset=offset):
            return "window bounds", f"{', '.join(name for name, _ in bounds)} at {every(period, offset, unit)}"
        case n.Session(text=text):
            return "session", text
        case n.Admit(router=router):
            return "admit", str(router)
        case n.Route(router=router):
            return "route", str(router)
        case n.Stamp(value=value):
            return "stamp", f"with {'the instant' if value is None else 'the queries'} at which a row came"
        case n.Filter(predicate=predicate):
            return "filter", expression(predicate)
        case n.Project(outputs=outputs):
            return "project", ", ".join(
                e.column if e.column == name else f"{expression(e)} AS {name}" for name, e in outputs
            )
        case n.Call():
            return "call", f"{node.function}({', '.join(node.arguments)}) AS {node.output}"
        case n.Unnest(lists=lists):
            return "unnest", ", ".join(f"{column} AS {output}" for output, column, _ in lists)
        case n.Join(equalities=equalities, residual=residual):
            flags = [str(i + 1) for i, internal in enumerate(node.internal) if internal]
            internal = f" (internal: {', '.join(flags)})" if flags else ""
            return "join", condition(equalities, residual) + internal
        case n.StarJoin(equalities=equalities, residual=residual, shedding=shedding, valid=valid):
            active = " AND active at every row's time" if valid else ""
            return "star join", f"{condition(equalities, residual)}{active}; {shedding.text}"
        case n.Semi(equalities=equalities, residual=residual, anti=anti):
            return "anti join" if anti else "semi join", condition(equalities, residual)
        case n.LeftJoin(equalities=equalities, residual=residual):
            return "left join", condition(equalities, residual)
        case n.AsofJoin(equalities=equalities, times=(left, right), strict=strict, pad=pad):
            when = f"{left} {'>' if strict else '>='} {right}"
            return "asof left join" if pad else "asof join", " AND ".join(
                [*([condition(equalities, ())] if equalities else []), when]
            )
        case n.TopN():
            return "top", _top_words(node)
        case n.Analytic(partition=partition, calls=calls):
            return "analytic", _analytic_words(partition, calls)
        case n.Holistic(keys=keys, calls=calls):
            shown = ", ".join(c.call.sql(lambda name: name) for c in calls)
            return "aggregate", f"{shown} by value" + (f" by {', '.join(keys)}" if keys else "")
        case n.Distinct():
            return "distinct", ""
        case n.Union():
            return "union all", ""
        case n.Difference():
            return "except all", ""
        case n.Intersection():
            return "intersect all", ""
        case n.OverNothing():
            return "over nothing", "a row for who has none"
        case n.Aggregate(keys=keys, calls=calls):
            by = f" by {', '.join(keys)}" if keys else ""
            return "aggregate", (", ".join(call_words(c) for c in calls) + by).strip()
        case n.Append():
            return "append", "results never expire"
        case n.Emit(op=op, period=period, offset=offset):
            return op.value, every(period, offset, unit) if period else ""
    return type(node).__name__.lower(), ""


def _sorted_by(order: Sequence[SortKey]) -> str:
    return ", ".join(
        f"{k.column}{' DESC' if k.descending else ''}{' NULLS FIRST' if k.nulls_first else ''}" for k in order
    )


def _analytic_words(partition: Sequence[str], calls: Sequence[n.AnalyticCall]) -> str:
    shown = []
    for c in calls:
        text = c.call.sql(lambda name: name)
        text += f" ordered by {_sorted_by(c.order)}" if c.order else ""
        shown.append(f"{text} {c.frame}".rstrip())
    return "; ".join(shown) + (f" of each {', '.join(partition)}" if partition else "")


def _top_words(node: n.TopN) -> str:
    parts = [f"{node.limit}" + (f" after {node.offset}" if node.offset else "")]
    parts += [f"by {node.kind}"] if node.kind != "row_number" else []
    parts += [f"of each {', '.join(node.partition)}"] if node.partition else []
    parts += [f"ordered by {_sorted_by(node.order)}"] if node.order else []
    return " ".join(parts)


def every(period: int, offset: int, unit: int) -> str:
    """When a periodic query is evaluated."""
    return f"every {duration(period, unit)}" + (f" plus {duration(offset, unit)}" if offset else "")


def duration(ticks: int, unit: int) -> str:
    """A length of time in the largest unit that divides it.

    >>> duration(90_000_000, 1_000_000), duration(7, 1)
    ('90 s', '7 ticks')
    """
    if unit == 1:
        return f"{ticks} ticks"
    for name, length in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000)):
        if ticks % length == 0:
            return f"{ticks // length} {name}"
    return f"{ticks} us"


def window_words(spec: n.WindowSpec) -> str:
    """A window as CQL writes it."""
    if spec.text:
        return spec.text if spec.text.startswith("[") else f"[{spec.text}]"
    size = {n.WindowKind.UNBOUNDED: "RANGE UNBOUNDED", n.WindowKind.NOW: "NOW"}.get(spec.kind)
    parts = [f"PARTITION BY {', '.join(spec.partition)}"] if spec.partition else []
    parts.append(size or f"{spec.kind.name} {spec.size}")
    parts += [f"SLIDE {spec.slide}"] if spec.slide else []
    parts += ["INTERNAL"] if spec.internal else []
    return f"[{' '.join(parts)}]"


def call_words(call: n.Aggregation) -> str:
    """An aggregate as SQL writes it."""
    arguments = [call.column or "*", *(str(p) for p in call.parameters)]
    distinct = "DISTINCT " if call.distinct else ""
    return f"{call.kind.upper()}({distinct}{', '.join(arguments)})"


def condition(equalities: Sequence[n.Equality], residual: Sequence[Expr]) -> str:
    """What a join demands, or "always"."""
    signs = {True: "IS NOT DISTINCT FROM", False: "="}
    terms = [f"{e.left} {signs[e.null_safe]} {e.right}" for e in equalities]
    return " AND ".join([*terms, *(expression(r) for r in residual)]) or "always"


def expression(e: Expr) -> str:
    """An expression with bare column names, without the parentheses around the whole."""
    text = e.sql(str)
    while text.startswith("(") and _closes_at_end(text):
        text = text[1:-1]
    return text


def _closes_at_end(text: str) -> bool:
    depth, quoted = 0, False
    for i, c in enumerate(text):
        quoted ^= c == "'"
        depth += 0 if quoted else (c == "(") - (c == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def sketch(node: n.Node) -> str:
    """A plan on one line.

    >>> sketch(n.Distinct(n.Union((n.Distinct(n.Union(())),))))
    'distinct(union all(distinct(union all)))'
    """
    name, arguments = words(node)
    shown = f"{name}[{arguments}]" if arguments else name
    inputs = ", ".join(sketch(i) for i in node.inputs)
    return f"{shown}({inputs})" if inputs else shown
