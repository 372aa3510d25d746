"""Texts in the words of other systems: what they say in DuckDB's is the answer."""

from __future__ import annotations

import numpy as np
import pytest
from tests.brought import DECLARED, answer, check_windows, given

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

SPELLED = {
    "SELECT host, ts FROM req {w} UNION ALL BY NAME SELECT ts, host, 1 AS extra FROM beat {w}":
        "SELECT host, ts, NULL::INTEGER AS extra FROM req {w} UNION ALL SELECT host, ts, 1 FROM beat {w}",
    "SELECT TOP 3 usr, SUM(bytes) AS b FROM req {w} GROUP BY usr ORDER BY b DESC EMIT CHANGES":
        "SELECT usr, SUM(bytes) AS b FROM req {w} GROUP BY usr ORDER BY b DESC LIMIT 3",
    "SELECT r.host, i.cap FROM req {w} AS r JOIN info FOR SYSTEM_TIME AS OF r.ts AS i ON r.host = i.host":
        "SELECT r.host, i.cap FROM req {w} AS r JOIN info AS i ON r.host = i.host",
    "SELECT FLOOR(ts TO HOUR) AS f, CEIL(ts TO DAY) AS c, FLOOR(ms) AS m, CEIL(ms) AS n FROM req {w}":
        "SELECT date_trunc('hour', ts) AS f, date_trunc('day', ts - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY AS c, "
        "floor(ms) AS m, ceil(ms) AS n FROM req {w}",
    "SELECT JSON_QUERY(body, '$.tags') AS t, EXTRACTJSONFIELD(body, '$.user.name') AS n, UCASE(host) AS u, "
    "TIMESTAMPTOSTRING(ts, 'yyyy-MM') AS s FROM req {w}":
        "SELECT json_extract(body, '$.tags') AS t, json_extract_string(body, '$.user.name') AS n, upper(host) AS u, "
        "strftime(ts, '%Y-%m') AS s FROM req {w}",
    "SELECT add_months(ts::DATE, 1) AS a, date_sub(ts::DATE, 2) AS s, substring_index(path, '/', 2) AS i, "
    "substring_index(path, '/', -1) AS j, named_struct('a', host, 'b', status) AS n FROM req {w}":
        "SELECT (ts::DATE + INTERVAL 1 MONTH)::DATE AS a, ts::DATE - 2 AS s, '/' || split_part(path, '/', 2) AS i, "
        "split_part(path, '/', -1) AS j, {'a': host, 'b': status} AS n FROM req {w}",
    "SELECT transform(tags, x -> upper(x)) AS t, filter(tags, x -> x = 'a') AS f, "
    "aggregate(transform(tags, x -> 1), 0, (acc, x) -> acc + x) AS g FROM req {w}":
        "SELECT list_transform(tags, lambda x: upper(x)) AS t, list_filter(tags, lambda x: x = 'a') AS f, "
        "CASE WHEN tags IS NOT NULL THEN len(tags)::INTEGER END AS g FROM req {w}",
    "SELECT btrim(path, '/') AS b, width_bucket(ms, 0, 200, 4) AS w, path ~* 'V1' AS r FROM req {w}":
        "SELECT trim(path, '/') AS b, CASE WHEN ms IS NOT NULL THEN least(floor(ms / 50)::INTEGER + 1, 5) END AS w, "
        "regexp_matches(path, 'v1') AS r FROM req {w}",
    "SELECT host, approx_distinct(usr) AS d, list_agg(status) AS l FROM req {w} GROUP BY host":
        "SELECT host, approx_count_distinct(usr) AS d, list(status) AS l FROM req {w} GROUP BY host",
    "SELECT jsonb_build_object('h', host, 's', status) AS j, json_build_object('m', ms) AS k FROM req {w}":
        "SELECT json_object('h', host, 's', status) AS j, json_object('m', ms) AS k FROM req {w}",
    "SELECT host, json_agg(status ORDER BY ts) AS j FROM req {w} GROUP BY host":
        "SELECT host, to_json(list(status ORDER BY ts)) AS j FROM req {w} GROUP BY host",
    "SELECT toStartOfFiveMinutes(ts) AS t, countIf(status >= 500) AS e, uniq(usr) AS u, sumIf(bytes, status = 200) "
    "AS s, avgIf(ms, status = 200) AS a, groupArray(status) AS g, COUNT() AS n FROM req {w} GROUP BY t":
        "SELECT time_bucket(INTERVAL 5 MINUTES, ts) AS t, count_if(status >= 500) AS e, count(DISTINCT usr) AS u, "
        "sum(bytes) FILTER (status = 200) AS s, avg(ms) FILTER (status = 200) AS a, list(status) FILTER (status IS "
        "NOT NULL) AS g, COUNT(*) AS n FROM req {w} GROUP BY t",
    "SELECT host, uniqExact(usr) AS u, anyLast(path) AS l, multiIf(status = 200, 'a', status = 404, 'b', 'c') AS k "
    "FROM req {w} GROUP BY host, k":
        "SELECT host, count(DISTINCT usr) AS u, last(path) FILTER (path IS NOT NULL) AS l, CASE WHEN status = 200 "
        "THEN 'a' WHEN status = 404 THEN 'b' ELSE 'c' END AS k FROM req {w} GROUP BY host, k",
    "SELECT IFF(status = 200, 1, 0) AS i, DIV0(bytes, 0) AS d, TO_VARCHAR(status) AS v, "
    "DECODE(status, 200, 'ok', NULL, 'none', 'no') AS e, TRY_TO_NUMBER(path) AS n, ISNULL(host, 'x') AS h, "
    "CHARINDEX('v', path) AS c, DATEPART(hour, ts) AS p FROM req {w}":
        "SELECT CASE WHEN status = 200 THEN 1 ELSE 0 END AS i, 0.0::DOUBLE AS d, status::VARCHAR AS v, CASE WHEN "
        "status = 200 THEN 'ok' WHEN status IS NULL THEN 'none' ELSE 'no' END AS e, "
        "TRY_CAST(path AS DECIMAL(38, 0)) AS n, "
        "coalesce(host, 'x') AS h, strpos(path, 'v') AS c, hour(ts) AS p FROM req {w}",
    "SELECT TIMESTAMP_TRUNC(ts, HOUR) AS h, SAFE_DIVIDE(SUM(bytes), 0) AS d, LOGICAL_OR(status = 500) AS o "
    "FROM req {w} GROUP BY h":
        "SELECT date_trunc('hour', ts) AS h, NULL::DOUBLE AS d, bool_or(status = 500) AS o FROM req {w} GROUP BY h",
    "SELECT TIMESTAMP_DIFF(TIMESTAMP '2024-04-01', ts, MINUTE) AS d, TIMESTAMP_ADD(ts, INTERVAL 1 HOUR) AS a, "
    "SAFE_CAST(path AS BIGINT) AS s, REGEXP_CONTAINS(path, 'v[01]') AS r FROM req {w}":
        "SELECT date_sub('minute', ts, TIMESTAMP '2024-04-01') AS d, ts + INTERVAL 1 HOUR AS a, NULL::BIGINT AS s, "
        "regexp_matches(path, 'v[01]') AS r FROM req {w}",
    "SELECT usr, LATEST_BY_OFFSET(status) AS l, EARLIEST_BY_OFFSET(status) AS e, TOPK(bytes, 3) AS t, "
    "COUNT_DISTINCT(path) AS d, first(ms, ts) AS f FROM req {w} GROUP BY usr":
        "SELECT usr, last(status) FILTER (status IS NOT NULL) AS l, first(status) FILTER (status IS NOT NULL) AS e, "
        "list(bytes ORDER BY bytes DESC) FILTER (bytes IS NOT NULL)[1:3] AS t, count(DISTINCT path) AS d, "
        "arg_min(ms, ts) AS f FROM req {w} GROUP BY usr",
    "SELECT date_bin('15 minutes', ts, '2000-01-01') AS b, count(*) AS n FROM req {w} GROUP BY 1":
        "SELECT time_bucket(INTERVAL 15 MINUTES, ts, TIMESTAMP '2000-01-01') AS b, count(*) AS n FROM req {w} "
        "GROUP BY 1",
}  # fmt: skip
TUMBLED = "SELECT host, window_start AS s, COUNT(*) AS n FROM TUMBLE(req, ts, INTERVAL '10' MINUTE) GROUP BY host, 2"
BOUNDS = "{'start': window_start, 'end': window_end}"
WINDOWED = {
    "SELECT host, WINDOWSTART AS s, COUNT(*) AS n FROM req WINDOW TUMBLING (SIZE 10 MINUTES) GROUP BY host "
    "EMIT CHANGES":
        TUMBLED,
    "SELECT host, window_start AS s, COUNT(*) AS n FROM TUMBLE(req, ts, INTERVAL '10' MINUTE) GROUP BY host, 2 "
    "EMIT ON WINDOW CLOSE": TUMBLED,
    "SELECT host, COUNT(*) AS n FROM req r WINDOW HOPPING (SIZE 30 MINUTES, ADVANCE BY 10 MINUTES) WHERE status = 200 "
    "GROUP BY host HAVING COUNT(*) > 1 EMIT FINAL":
        "SELECT host, COUNT(*) AS n FROM HOP(req, ts, INTERVAL '10' MINUTE, INTERVAL '30' MINUTE) WHERE status = 200 "
        "GROUP BY host HAVING COUNT(*) > 1",
    "SELECT host, COUNT(*) AS n FROM req WINDOW SESSION (10 MINUTES) GROUP BY host":
        "SELECT host, COUNT(*) AS n FROM SESSION(req PARTITION BY host, ts, INTERVAL '10' MINUTE) GROUP BY host",
    "SELECT tumble(interval '10 minutes') AS window, host, count(*) AS n FROM req GROUP BY window, host":
        f"SELECT {BOUNDS} AS window, host, COUNT(*) AS n FROM TUMBLE(req, ts, INTERVAL '10' MINUTE) GROUP BY "
        "window_start, window_end, host",
    "SELECT hop(interval '5 minutes', interval '10 minutes') AS w, count(*) AS n FROM req GROUP BY 1":
        f"SELECT {BOUNDS} AS w, COUNT(*) AS n FROM HOP(req, ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) GROUP BY "
        "window_start, window_end",
    "SELECT window(ts, '10 minutes') AS w, COUNT(*) AS n FROM req GROUP BY w":
        f"SELECT {BOUNDS} AS w, COUNT(*) AS n FROM TUMBLE(req, ts, INTERVAL '10' MINUTE) GROUP BY window_start, "
        "window_end",
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLED)
def test_words(text):
    """Functions and clauses."""
    check_windows(text, SPELLED[text])


@pytest.mark.parametrize("text", WINDOWED)
def test_windows(text):
    """Windows of ksql, Arroyo and Spark, in the places where these have them."""
    assert_same(answer(text), oracle(f"{DECLARED} CREATE QUERY q AS {WINDOWED[text]}", *given())["q"])


@pytest.mark.parametrize(
    "window",
    ["TUMBLING (SIZE 10 MINUTES{})", "HOPPING (SIZE 30 MINUTES, ADVANCE BY 10 MINUTES{})", "SESSION (10 MINUTES{})"],
)
def test_a_grace_that_the_stream_grants(window):
    """Rows that are late by as much are in their windows."""
    text = f"SELECT host, COUNT(*) AS n FROM req WINDOW {window} GROUP BY host"
    slow, (streams, tables) = DECLARED.replace("BY ts", "BY ts WITHIN 20 MINUTES"), given()
    assert slow != DECLARED
    shuffled = streams["req"].take(np.argsort(np.arange(len(streams["req"])) + np.arange(len(streams["req"])) % 3 * 2))
    want = windrow.run(f"{DECLARED} CREATE QUERY q AS {text.format('')}", streams, tables, runtime="local")["q"]
    for grace in ("20 MINUTES", "1 SECOND"):
        late = f"{slow} CREATE QUERY q AS {text.format(f', GRACE PERIOD {grace}')}"
        assert_same(windrow.run(late, {**streams, "req": shuffled}, tables, runtime="local")["q"], want)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("SELECT host, COUNT(*) FROM req GROUP BY host EMIT FINAL", 'syntax error at "EMIT"', "TUMBLE"),
        ("SELECT host, COUNT(*) FROM req WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 HOUR) GROUP BY host",
         'GRACE PERIOD 1 HOUR on a window of "req", which does not wait that long', "ts WITHIN 1 HOUR"),
        ("SELECT h, COUNT(*) FROM (SELECT host AS h, _ts FROM req) WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 HOUR) "
         "GROUP BY h", "GRACE PERIOD 1 HOUR on a window of a query", "with WITHIN"),
        ("SELECT host, COUNT(*) FROM req WINDOW TUMBLING (GRACE PERIOD 1 HOUR, SIZE 1 HOUR) GROUP BY host",
         'syntax error at "TUMBLING"', "GRACE PERIOD"),
        ("SELECT host FROM req#time(10 min)", 'syntax error at "#"', "[RANGE 10 MINUTES SLIDE 1 MINUTE]"),
        ("SELECT * FROM req MATCH_RECOGNIZE (PARTITION BY host ORDER BY ts PATTERN (A B))", "syntax error", "LAG(a)"),
        ("SELECT *, NOW() AS p_time FROM req", "changes by itself", "PROCTIME()"),
        ("SELECT host FROM req WHERE mz_now() < ts", "changes by itself", "[RANGE 5 MINUTES]"),
        ("SELECT host FROM req UNION ALL CORRESPONDING SELECT host FROM beat", "CORRESPONDING", "BY NAME"),
    ],
)  # fmt: skip
def test_hints(text, says, hint):
    """What is refused says what to write."""
    with pytest.raises(WindrowError) as error:
        answer(text)
    assert says in str(error.value) and hint in str(error.value)


def test_a_materialized_view_is_a_query(tmp_path):
    """It has an answer, may be read, replaced and dropped, and is there after a restart."""
    script = """
        CREATE STREAM IF NOT EXISTS s (k BIGINT, ts BIGINT) TIMESTAMP BY ts;
        CREATE MATERIALIZED VIEW IF NOT EXISTS m AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
        CREATE QUERY IF NOT EXISTS top AS SELECT MAX(n) AS n FROM m;
    """
    for ts, count in ((1, 1), (2, 2)):
        engine = windrow.Engine(runtime="local", home=tmp_path)
        engine.execute(script)
        engine.start()
        engine.push("s", {"k": [7], "ts": [ts]})
        engine.advance(ts)
        assert engine["m"].snapshot().to_pylist() == [{"k": 7, "n": count}]
        assert engine["top"].snapshot().to_pylist() == [{"n": count}]
        engine.stop()
    engine = windrow.Engine(runtime="local", home=tmp_path)
    engine.execute("DROP QUERY top; CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k FROM s; DROP MATERIALIZED VIEW m")
    assert engine.execute("SHOW QUERIES")[0].num_rows == 0
