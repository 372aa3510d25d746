"""The scalar functions a query may call: a closed list, grouped by how large what they make can be.

A function is here if its value follows from its arguments alone, on every machine and at every time. So these are not:
what looks at the clock (`now`, `age` of one argument, `ago`), draws at random (`random`, `uuid`), waits (`sleep_ms`),
looks at the session, its settings or the system (`current_setting`, `getvariable`, `version`, `pg_...`), at the catalog
(`nextval`, `in_search_path`, `format_type`), at how DuckDB stores a value (`stats`, `vector_type`, `alias`) or at a
file; what takes SQL or types as text (`json_serialize_sql`, `from_json`); what makes rows (`unnest`); what only fails
(`error`); and DuckDB's inner helpers (`__internal_...`, `collate_...`, `create_sort_key`). A function that a later
DuckDB adds is unknown until someone lists it. `tests/cql/test_builtins.py` holds the list against the pinned DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


FIXED = names(
    # numbers
    """
    abs acos acosh asin asinh atan atan2 atanh binom bit_count cbrt ceil ceiling cos cosh cot degrees even exp factorial
    fdiv floor fmod gamma gcd greatest_common_divisor isfinite isinf isnan lcm least_common_multiple lgamma ln log log10
    log2 mod nextafter pi pow power radians round round_even roundbankers sign signbit sin sinh sqrt tan tanh trunc
    """
    # numbers and truths about text
    """
    ascii bit_length bit_position char_length character_length contains damerau_levenshtein editdist3 ends_with get_bit
    hamming hash ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity len length length_grapheme
    levenshtein like_escape md5 md5_number md5_number_lower md5_number_upper mismatches not_ilike_escape not_like_escape
    octet_length ord parse_formatted_bytes prefix regexp_full_match regexp_matches sha1 sha256 starts_with
    strlen strpos suffix unicode
    """
    # times, always in UTC
    """
    age century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian
    last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz microsecond
    millennium millisecond minute month monthname nanosecond normalized_interval quarter second strptime time_bucket
    timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia
    to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years try_strptime
    uuid_extract_timestamp uuid_extract_version week weekday weekofyear year yearweek
    """
    # numbers and truths about lists, maps, structs and JSON
    """
    array_contains array_cosine_distance array_cosine_similarity array_distance array_dot_product array_has
    array_has_all array_has_any array_indexof array_inner_product array_length array_negative_dot_product
    array_negative_inner_product array_position array_unique cardinality json_contains json_valid
    list_bool_and list_bool_or list_bit_and list_bit_or list_bit_xor list_avg list_contains
    list_cosine_distance list_cosine_similarity list_count list_distance list_dot_product list_entropy list_has
    list_has_all list_has_any list_indexof list_inner_product list_kurtosis list_kurtosis_pop list_mad list_median
    list_negative_dot_product list_negative_inner_product list_position list_product list_sem list_skewness
    list_stddev_pop list_stddev_samp list_sum list_unique list_var_pop list_var_samp list_approx_count_distinct
    map_contains map_contains_entry map_contains_value struct_contains struct_has struct_indexof struct_position
    """
)
"""What they make is a number, a truth, a time or a text of bounded length."""

SUMS = names(
    """
    coalesce greatest ifnull least nullif try typeof xor
    add divide multiply subtract
    chr concat decode encode from_base64 from_binary from_hex lcase left left_grapheme lower ltrim nfc_normalize overlay
    parse_dirname parse_dirpath parse_filename parse_path path_join regexp_extract_all
    regexp_split_to_array reverse right right_grapheme rtrim set_bit split split_part str_split str_split_regex
    string_split string_split_regex string_to_array strip_accents substr substring substring_grapheme translate trim
    ucase unbin unhex upper url_decode
    array_append array_cat array_concat array_cross_product array_distinct array_extract array_filter array_grade_up
    array_intersect array_pop_back array_pop_front array_prepend array_push_back array_push_front array_reverse
    array_reverse_sort array_slice array_sort array_value array_where array_zip element_at filter flatten
    grade_up list_any_value list_append list_cat list_concat list_distinct list_element list_extract list_filter
    list_first list_grade_up list_histogram list_intersect list_last list_max list_min list_mode list_pack list_prepend
    list_reverse list_reverse_sort list_slice list_sort list_string_agg list_value list_where list_zip
    map map_concat map_entries map_extract map_extract_value map_from_entries map_keys map_values
    row struct_concat struct_extract struct_extract_at struct_insert struct_keys struct_pack struct_update struct_values
    enum_first enum_last enum_range enum_code
    json json_deep_merge json_insert json_merge_patch json_remove json_replace json_set json_strip_nulls json_structure
    """
)
"""What they make is at most as large as all their arguments together."""

SCALED: Mapping[str, int] = {
    "base64": 2, "to_base64": 2, "hex": 2, "to_hex": 2, "bin": 8, "to_binary": 8, "to_base": 64,
    "url_encode": 3, "regexp_escape": 2, "strftime": 32, "format_bytes": 1, "formatreadablesize": 1,
    "formatreadabledecimalsize": 1, "json_quote": 8, "to_json": 8, "json_array": 8, "json_object": 8,
    "array_to_json": 8, "row_to_json": 8,
}  # fmt: skip
"""What they make is at most so many times as large as all their arguments together."""

PRODUCTS: Mapping[str, int] = {
    **dict.fromkeys(("replace", "regexp_replace", "regexp_extract"), 2),
    **dict.fromkeys(("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"), 2),
    **dict.fromkeys(
        ("array_to_string", "array_to_string_comma_default", "concat_ws", "list_select", "array_select"), 1
    ),
}
"""What they make is at most as large as the first argument times those from the one of that number on."""

FINDERS = names(
    """
    json_array_length json_exists json_extract json_extract_path json_extract_path_text json_extract_string json_keys
    json_type json_value
    """
)
"""What they find in their first argument by a path, or by each of several, which may lead to all of it."""

TRANSFORMS = frozenset(("apply", "array_apply", "array_transform", "list_apply", "list_transform"))
"""They apply a lambda to every element of a list."""

GENERATORS: Mapping[str, int] = {
    "repeat": 1, "lpad": 1, "rpad": 1, "bar": 3, "list_resize": 1, "array_resize": 1,
    "bitstring": 1,
}  # fmt: skip
"""What they make is as large as the argument of that number says, which must be a constant."""

RESIZERS = frozenset(("list_resize", "array_resize"))
"""Generators whose third argument, if given, is what they make so many of."""

SERIES = frozenset(("range", "generate_series"))
"""Lists from a first to a last number, which must be constants."""

PATTERNS = frozenset(("format", "printf"))
"""What they make is as large as the widths in their first argument say, which must be a constant."""

REDUCERS = frozenset(("list_reduce", "array_reduce", "reduce"))
"""They fold a list; the lambda must make something of fixed size, because it is applied to what it made."""

SCALARS = frozenset().union(FIXED, SUMS, TRANSFORMS, SERIES, PATTERNS, REDUCERS, FINDERS, SCALED, PRODUCTS, GENERATORS)
"""Every scalar function that a query may call, by its name in lower case."""

ARITIES: Mapping[str, int] = {"age": 2}
"""Functions that a query may call with at least so many arguments: `age` of one looks at the clock."""

LIST_AGGREGATES = names(
    """
    any_value approx_count_distinct avg bit_and bit_or bit_xor bool_and bool_or count entropy first histogram kurtosis
    kurtosis_pop last mad max median min mode product sem skewness stddev_pop stddev_samp string_agg sum var_pop
    var_samp
    """
)
"""What `list_aggr(l, 'name')` may name."""

PAIRS = frozenset(
    ("damerau_levenshtein", "editdist3", "jaccard", "jaro_similarity", "jaro_winkler_similarity", "levenshtein")
)
"""They compare every place of one argument with every place of the other."""

SEARCHES_ALL = frozenset(("regexp_extract_all", "regexp_split_to_array", "str_split_regex", "string_split_regex"))
SEARCHES = SEARCHES_ALL | {"regexp_matches", "regexp_full_match", "regexp_replace", "regexp_extract"}
"""They compare every place of a text with every place of a regular expression; some begin again after each match."""

LIST_AGGREGATORS = frozenset(("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"))

AGGREGATES: Mapping[str, str] = {
    "count": "count", "count_star": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max",
    "variance": "variance", "var_samp": "variance", "stddev": "stddev", "stddev_samp": "stddev",
    "var_pop": "var_pop", "stddev_pop": "stddev_pop", "median": "median",
    "quantile": "quantile", "quantile_disc": "quantile", "quantile_cont": "quantile_cont", "top_k": "top_k",
    "frequent": "frequent", "frequent_delta": "frequent_delta",
    **{f: f for f in ("approx_count_distinct", "approx_quantile", "approx_top_k")},
}  # fmt: skip
"""Aggregate functions by the name written, with the kind the plan calls them."""

ORDERED = frozenset(("arg_max", "arg_min", "first", "last", "any_value", "string_agg", "list", "mode"))
"""Aggregates whose value depends on the order of rows."""

HOLISTIC: Mapping[str, str] = {
    "arg_max": "arg_max", "max_by": "arg_max", "argmax": "arg_max",
    "arg_min": "arg_min", "min_by": "arg_min", "argmin": "arg_min",
    "first": "first", "last": "last", "first_value": "first", "last_value": "last", "any_value": "any_value",
    "arbitrary": "first", "string_agg": "string_agg", "group_concat": "string_agg", "listagg": "string_agg",
    "list": "list", "array_agg": "list", "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor",
    "product": "product", "geometric_mean": "geomean", "geomean": "geomean", "histogram": "histogram", "mad": "mad",
    "entropy": "entropy",
    **{f: f for f in (
        "mode", "corr", "covar_pop", "covar_samp", "skewness", "kurtosis", "kurtosis_pop", "regr_avgx", "regr_avgy",
        "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "sem",
    )},
}  # fmt: skip
"""Aggregates that are computed anew from all rows of a group, by the name written, with DuckDB's."""

REWRITTEN = frozenset(("count_if", "countif", "bool_and", "bool_or", "every", "logical_and", "logical_or"))
"""Aggregates that are others with another argument."""

DATE_PARTS = names(
    """
    CENTURY CENTURIES DAY DAYS DAYOFMONTH DAYOFWEEK DAYOFYEAR DECADE DECADES DOW DOY EPOCH ERA HOUR HOURS ISODOW ISOYEAR
    JULIAN MICROSECOND MICROSECONDS MILLENNIUM MILLENNIA MILLISECOND MILLISECONDS MINUTE MINUTES MONTH MONTHS NANOSECOND
    QUARTER QUARTERS SECOND SECONDS TIMEZONE TIMEZONE_HOUR TIMEZONE_MINUTE WEEK WEEKS WEEKDAY YEAR YEARS YEARWEEK
    """
)
"""What EXTRACT may name."""

INTERVAL_UNITS = names(
    """
    CENTURY CENTURIES DAY DAYS DECADE DECADES HOUR HOURS MICROSECOND MICROSECONDS MILLENNIUM MILLENNIA MILLISECOND
    MILLISECONDS MINUTE MINUTES MONTH MONTHS QUARTER QUARTERS SECOND SECONDS WEEK WEEKS YEAR YEARS
    """
)
"""Units of an INTERVAL."""

COLLATIONS: Mapping[str, str] = {"nocase": "LOWER", "noaccent": "STRIP_ACCENTS", "nfc": "NFC_NORMALIZE"}
"""Collations and what they compare instead of the texts: DuckDB's own definitions."""
