"""Functions of other systems that are one expression of DuckDB's, by their parameters. Times are UTC."""

from __future__ import annotations

_SHARED = {
    ("nvl", "a, b"): "coalesce(a, b)", ("nvl2", "a, b, c"): "CASE WHEN a IS NOT NULL THEN b ELSE c END",
    ("iif", "a, b, c"): "CASE WHEN a THEN b ELSE c END", ("zeroifnull", "a"): "coalesce(a, 0)",
    ("nullifzero", "a"): "nullif(a, 0)", ("isnull", "a"): "a IS NULL", ("isnotnull", "a"): "a IS NOT NULL",
    ("regexp_like", "a, b"): "regexp_matches(a, b)", ("rlike", "a, b"): "regexp_matches(a, b)",
    ("locate", "a, b"): "strpos(b, a)", ("truncate", "a"): "trunc(a)", ("size", "a"): "len(a)",
    ("array_size", "a"): "len(a)", ("to_date", "a"): "CAST(a AS DATE)",
    ("datediff", "a, b"): "date_diff('day', CAST(b AS DATE), CAST(a AS DATE))",
    ("unix_timestamp", "a"): "CAST(floor(epoch(a)) AS BIGINT)",
    ("percentile", "a, b"): "quantile_cont(a, b)", ("approx_percentile", "a, b"): "approx_quantile(a, b)",
    ("percentile_approx", "a, b"): "approx_quantile(a, b)", ("get_json_object", "a, b"): "json_extract_string(a, b)",
    ("collect_list", "a"): "list(a) FILTER (WHERE a IS NOT NULL)",
    ("collect_set", "a"): "list(DISTINCT a) FILTER (WHERE a IS NOT NULL)", ("sort_array", "a"): "list_sort(a)",
    ("explode", "a"): "unnest(a)",
    ("from_utc_timestamp", "a, b"): "timezone(b, timezone('UTC', CAST(a AS TIMESTAMP)))",
    ("to_utc_timestamp", "a, b"): "timezone('UTC', timezone(b, CAST(a AS TIMESTAMP)))",
    ("convert_timezone", "a, b, c"): "timezone(b, timezone(a, CAST(c AS TIMESTAMP)))",
    **{(f"tostartof{unit}", "a"): f"date_trunc('{unit}', a)" for unit in ("minute", "hour", "day", "month", "year")},
    ("from_unixtime", "a"): "strftime(make_timestamp(CAST(a AS BIGINT) * 1000000), '%Y-%m-%d %H:%M:%S')",
    ("date_bin", "a, b, c"): "time_bucket(CAST(a AS INTERVAL), b, CAST(c AS TIMESTAMP))",
    ("date_bin", "a, b"): "time_bucket(CAST(a AS INTERVAL), b)",
    ("iff", "a, b, c"): "CASE WHEN a THEN b ELSE c END", ("isnull", "a, b"): "coalesce(a, b)",
    ("btrim", "a"): "trim(a)", ("btrim", "a, b"): "trim(a, b)", ("charindex", "a, b"): "strpos(b, a)",
    ("logical_and", "a"): "bool_and(a)", ("logical_or", "a"): "bool_or(a)",
    ("regexp_contains", "a, b"): "regexp_matches(a, b)", ("generate_array", "a, b"): "generate_series(a, b)",
    ("safe_divide", "a, b"): "a / nullif(b, 0)", ("div0", "a, b"): "CASE WHEN b = 0 THEN 0 ELSE a / b END",
    ("pmod", "a, b"): "((a % b) + b) % b", ("to_varchar", "a"): "CAST(a AS VARCHAR)",
    ("try_to_number", "a"): "TRY_CAST(a AS DECIMAL(38, 0))", ("to_number", "a"): "CAST(a AS DECIMAL(38, 0))",
    ("width_bucket", "a, b, c, d"):
        "CASE WHEN a < b THEN 0 WHEN a >= c THEN d + 1 ELSE CAST(floor((a - b) * d / (c - b)) AS INTEGER) + 1 END",
    ("time_slice", "a, b, c"): "time_bucket(CAST(concat(b, ' ', c) AS INTERVAL), a)",
    ("ucase", "a"): "upper(a)", ("lcase", "a"): "lower(a)",
    ("timestamp_add", "a, b"): "a + b", ("timestamp_sub", "a, b"): "a - b",
}  # fmt: skip
_SPARK = {
    ("add_months", "a, b"): "CAST(a + to_months(CAST(b AS INTEGER)) AS DATE)",
    ("date_sub", "a, b"): "CAST(a - to_days(CAST(b AS INTEGER)) AS DATE)",
    ("substring_index", "a, b, c"):
        "array_to_string(list_slice(string_split(a, b), CASE WHEN c > 0 THEN 1 ELSE c END, "
        "CASE WHEN c > 0 THEN c ELSE -1 END), b)",
}  # fmt: skip
_JSON = {
    ("json_query", "a, b"): "json_extract(a, b)", ("extractjsonfield", "a, b"): "json_extract_string(a, b)",
    ("jsonb_array_length", "a"): "json_array_length(a)", ("jsonb_typeof", "a"): "json_type(a)",
    ("json_typeof", "a"): "json_type(a)",
}  # fmt: skip
_CLICKHOUSE = {
    ("uniq", "a"): "count(DISTINCT a)", ("uniqexact", "a"): "count(DISTINCT a)",
    ("grouparray", "a"): "list(a) FILTER (WHERE a IS NOT NULL)",
    ("groupuniqarray", "a"): "list(DISTINCT a) FILTER (WHERE a IS NOT NULL)",
    **{(f"{name}if", "a, b"): f"{name}(a) FILTER (WHERE b)" for name in ("sum", "avg", "min", "max")},
    ("uniqif", "a, b"): "count(DISTINCT a) FILTER (WHERE b)",
    ("anylast", "a"): "last(a) FILTER (WHERE a IS NOT NULL)", ("tostring", "a"): "CAST(a AS VARCHAR)",
    ("todate", "a"): "CAST(a AS DATE)", ("toint64", "a"): "CAST(a AS BIGINT)", ("tofloat64", "a"): "CAST(a AS DOUBLE)",
    **{
        (f"tostartof{name}minutes", "a"): f"time_bucket(to_minutes({count}), a)"
        for name, count in (("five", 5), ("ten", 10), ("fifteen", 15))
    },
    ("tostartofinterval", "a, b"): "time_bucket(b, a)", ("formatdatetime", "a, b"): "strftime(a, b)",
    ("arrayjoin", "a"): "unnest(a)",
    **{(f"to{part}", "a"): f"{part}(a)" for part in ("year", "month", "hour", "minute", "second")},
    **{(f"{name}{kind}", "a"): f"{known}_{kind}(a)" for name, known in (("stddev", "stddev"), ("var", "var"))
       for kind in ("pop", "samp")},
}  # fmt: skip
_KSQL = {
    ("latest_by_offset", "a"): "last(a) FILTER (WHERE a IS NOT NULL)",
    ("earliest_by_offset", "a"): "first(a) FILTER (WHERE a IS NOT NULL)",
    ("topk", "a, b"): "list_slice(list_reverse_sort(list(a) FILTER (WHERE a IS NOT NULL)), 1, b)",
    ("topkdistinct", "a, b"): "list_slice(list_reverse_sort(list(DISTINCT a) FILTER (WHERE a IS NOT NULL)), 1, b)",
    ("count_distinct", "a"): "count(DISTINCT a)",
    ("approx_distinct", "a"): "approx_count_distinct(a)", ("list_agg", "a"): "list(a)",
    **{(f"{kind}_build_object", names): f"json_object({names})" for kind in ("json", "jsonb")
       for names in ("a, b", "a, b, c, d", "a, b, c, d, e, f")},
}  # fmt: skip
_TIMESCALE = {("first", "a, b"): "arg_min(a, b)", ("last", "a, b"): "arg_max(a, b)"}
SYNONYMS = {**_SHARED, **_SPARK, **_JSON, **_CLICKHOUSE, **_KSQL, **_TIMESCALE}
RENAMED = {
    ("transform", 2): ("list_transform", (0, 1)), ("filter", 2): ("list_filter", (0, 1)),
    ("aggregate", 3): ("list_reduce", (0, 2, 1)), ("reduce", 3): ("list_reduce", (0, 2, 1)),
}  # fmt: skip
"""Functions of lists and lambdas by another name, by how many arguments they have: which one stands where."""
OWN = frozenset(("datediff", "date_sub", "first", "last"))
"""Names that DuckDB has as well, with other arguments."""
ELSEWHERE = {
    "prev": "the row before is LAG(a) OVER (PARTITION BY k ORDER BY ts)",
    "nth": "write NTH_VALUE(a, 2) OVER (PARTITION BY k ORDER BY ts), or LIST(a ORDER BY ts)[2]",
    "rate": "write COUNT(*) / 60 FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS]",
    "window": "write GROUP BY window(ts, '10 minutes'); all values of a group are LIST(a)",
}
"""Functions of other systems that are written otherwise."""
