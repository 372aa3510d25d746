"""The algebra: small frozen nodes, checked when built, so an invalid tree cannot exist.

A node's `schema` maps internal column names to Arrow types. Internal names are unique within a query
(`alias.column` for scanned columns). Adding an operator touches four places: a node in the part of this package that
it belongs to, its pattern rule (`plan/patterns.py`), its lowering, and the operator itself.

    node       what every node has          joins      rows of several inputs meet
    windows    leaves and lifetimes         groups     several rows of one input decide
    rows       each row by itself           query      the whole, and how it leaves
"""

from windrow.operators.aggregates.call import Aggregation
from windrow.plan.nodes.groups import (
    Aggregate,
    Analytic,
    AnalyticCall,
    Difference,
    Distinct,
    Holistic,
    HolisticCall,
    Intersection,
    OverNothing,
    TopN,
    Union,
)
from windrow.plan.nodes.joins import AsofJoin, Equality, Join, LeftJoin, Semi, Shedding, StarJoin
from windrow.plan.nodes.node import Binary, Leaf, Node, Unary
from windrow.plan.nodes.query import Append, Emit, Parting, QueryPlan, StreamOp, TickBudget
from windrow.plan.nodes.rows import Admit, Call, Filter, Project, Route, Stamp, Unnest
from windrow.plan.nodes.walks import has, routed_scans, scanned, walk
from windrow.plan.nodes.windows import Quantise, Scan, Session, TableScan, Window, WindowBounds, WindowKind, WindowSpec

__all__ = [
    "Admit",
    "Aggregate",
    "Aggregation",
    "Analytic",
    "AnalyticCall",
    "Append",
    "AsofJoin",
    "Binary",
    "Call",
    "Difference",
    "Distinct",
    "Emit",
    "Equality",
    "Filter",
    "Holistic",
    "HolisticCall",
    "Intersection",
    "Join",
    "Leaf",
    "LeftJoin",
    "Node",
    "OverNothing",
    "Parting",
    "Project",
    "Quantise",
    "QueryPlan",
    "Route",
    "Scan",
    "Semi",
    "Session",
    "Shedding",
    "Stamp",
    "StarJoin",
    "StreamOp",
    "TableScan",
    "TickBudget",
    "TopN",
    "Unary",
    "Union",
    "Unnest",
    "Window",
    "WindowBounds",
    "WindowKind",
    "WindowSpec",
    "has",
    "routed_scans",
    "scanned",
    "walk",
]
