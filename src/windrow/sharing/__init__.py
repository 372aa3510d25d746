"""Shared aggregation: many periodic aggregate queries over one stream in one pass (slices, fragments, shards).

    recognise   which plans can share, and what remains of them above
    windows     paired and paned windows as slice vectors, and their composition
    slices      slice edges on the fly: the slice manager
    conditions  predicates as trees of spans over attributes
    condition columns   many conditions of one form as columns
    cells       the predicate index: a row's cell per group of attributes
    synopsis store      partials and answers without GROUP BY
    shards      partials and answers with GROUP BY, and of functions that need the values
    family      the queries over the same rows, advanced together
    member columns      those that differ in constants only, as columns
    group       what a runtime drives: all families, and what stands above each aggregate
    counters    the paper's costs, counted and by formula; whether to share

Nothing here imports sqlglot or Spark: a family is an operator that ships to executors (`recognise` and `group`
excepted, which read plans).
"""
