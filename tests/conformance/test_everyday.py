"""Queries as people bring them to monitoring, continuously and periodically: each as the definition has it."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

DECLARED = """
CREATE STREAM req (host VARCHAR, path VARCHAR, status INTEGER, ms DOUBLE, bytes BIGINT, usr BIGINT, body VARCHAR,
                   tags VARCHAR[], ts TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM beat (host VARCHAR, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE TABLE info (host VARCHAR, team VARCHAR);
"""
START, ROWS = dt.datetime(2024, 3, 30, 22, 50), 60  # a night in which clocks change in Berlin


def given() -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    rng = np.random.default_rng(3)

    def times(count: int) -> list[dt.datetime]:
        return [START + dt.timedelta(seconds=int(s)) for s in np.sort(rng.integers(0, 3 * 3600, count))]

    request = pa.table({
        "host": [f"h{i}" for i in rng.integers(0, 3, ROWS)],
        "path": [f"/api/v{i}/items?id={i * 7}" for i in rng.integers(0, 4, ROWS)],
        "status": pa.array(rng.choice([200, 200, 204, 404, 500, 503], ROWS), pa.int32()),
        "ms": rng.integers(1, 800, ROWS) / 4.0, "bytes": np.cumsum(rng.integers(0, 50, ROWS)),
        "usr": rng.integers(0, 5, ROWS),
        "body": [json.dumps({"user": {"id": int(i), "name": f"u{i}"}, "n": int(i)}) for i in rng.integers(0, 5, ROWS)],
        "tags": [["a", "b"][: int(i)] for i in rng.integers(0, 3, ROWS)], "ts": times(ROWS),
    })  # fmt: skip
    beat = pa.table({"host": [f"h{i}" for i in rng.integers(0, 3, 20)], "ts": times(20)})
    info = pa.table({"host": ["h0", "h1", "h9"], "team": ["red", "blue", "green"]})
    return {"req": request, "beat": beat}, {"info": info}


QUERIES = {
    "error rates per minute": "SELECT date_trunc('minute', ts) AS minute, 100.0 * COUNT(*) FILTER (WHERE status "
    ">= 500) "
    "/ COUNT(*) AS pct FROM req GROUP BY 1",
    "error rates per window": "SELECT window_start, host, AVG(CASE WHEN status >= 500 THEN 1 ELSE 0 END) AS rate "
    "FROM TUMBLE(req, ts, INTERVAL '15' MINUTE) GROUP BY 1, 2",
    "top 2 per host": "SELECT * FROM (SELECT host, path, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY host ORDER BY "
    "COUNT(*) DESC, path) AS rk FROM req [RANGE 50 MINUTES] GROUP BY host, path) WHERE rk <= 2",
    "sessions": "SELECT usr, COUNT(*) AS hits, MAX(ts) - MIN(ts) AS lasted FROM SESSION(req PARTITION BY usr, ts, "
    "INTERVAL '10 minutes') GROUP BY usr, window_start, window_end",
    "a dimension": "SELECT r.host, COALESCE(i.team, 'none') AS team, COUNT(*) AS n FROM req [RANGE 30 MINUTES] r "
    "LEFT JOIN info i ON r.host = i.host GROUP BY r.host, i.team",
    "latencies": "SELECT host, quantile_cont(ms, 0.95) AS p95, median(ms) AS p50 "
    "FROM req [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY host",
    "rate of change": "SELECT host, ts, bytes - LAG(bytes) OVER (PARTITION BY host ORDER BY ts) AS d "
    "FROM req [RANGE 1 HOUR]",
    "absence": "SELECT i.host FROM info i WHERE NOT EXISTS (SELECT 1 FROM beat [RANGE 15 MINUTES] b "
    "WHERE b.host = i.host)",
    "absence by an outer join": "SELECT i.host, COUNT(b.host) AS n FROM info i LEFT JOIN beat "
    "[RANGE 15 MINUTES SLIDE 15 MINUTES] b ON b.host = i.host GROUP BY i.host HAVING COUNT(b.host) = 0",
    "days in Berlin": "SELECT date_trunc('day', ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS day, "
    "COUNT(*) AS n, SUM(bytes) AS b FROM req GROUP BY 1",
    "JSON": "SELECT json_extract_string(body, '$.user.name') AS name, json_extract(body, '$.n')::INT AS n FROM "
    "req [NOW]",
    "shapes of paths": "SELECT regexp_replace(path, '[0-9]+', '#', 'g') AS shape, COUNT(*) AS n FROM req [RANGE "
    "1 HOUR] "
    "GROUP BY 1 HAVING COUNT(*) > 2",
    "classes": "SELECT CASE WHEN status < 300 THEN '2xx' WHEN status < 500 THEN '4xx' ELSE '5xx' END AS class, "
    "COUNT(*) AS n, AVG(ms) AS mean FROM req [RANGE 30 MINUTES] GROUP BY class",
    "intervals": "SELECT ts + INTERVAL '1 hour 30 minutes' AS later, ts - INTERVAL 15 MINUTES AS b FROM req [NOW]",
    "texts": "SELECT upper(host) AS u, substring(path FROM 2 FOR 3) AS s, position('v' IN path) AS p, "
    "split_part(path, '/', 3) AS part, concat_ws('-', host, status) AS c, lpad(host, 5, '0') AS l FROM req [NOW]",
    "lists of texts": "SELECT host, string_agg(DISTINCT path, ', ' ORDER BY path) AS p FROM req [RANGE 30 MINUTES] "
    "GROUP BY host",
    "moving averages": "SELECT host, ts, AVG(ms) OVER (PARTITION BY host ORDER BY ts RANGE BETWEEN INTERVAL 5 MINUTES "
    "PRECEDING AND CURRENT ROW) AS m FROM req [RANGE 1 HOUR]",
    "shares": "SELECT host, n * 100.0 / SUM(n) OVER () AS share FROM (SELECT host, COUNT(*) AS n FROM req "
    "[RANGE 1 HOUR] GROUP BY host)",
    "users per hour": "SELECT date_trunc('hour', ts) AS hour, COUNT(DISTINCT usr) AS u FROM req GROUP BY hour "
    "ORDER BY hour DESC LIMIT 3",
    "outliers": "SELECT host, ms FROM req [RANGE 30 MINUTES] WHERE ms > (SELECT AVG(ms) + STDDEV(ms) FROM req "
    "[RANGE 30 MINUTES])",
    "the newest status": "SELECT host, arg_max(status, ts) AS a, min_by(status, ts) AS b FROM req [RANGE 1 HOUR] "
    "GROUP BY host",
    "a funnel": "SELECT a.usr, a.ts AS seen, b.ts AS bought FROM req [RANGE 1 HOUR] a JOIN req [RANGE 1 HOUR] b ON "
    "a.usr = b.usr AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES WHERE a.status = 200 AND b.status = 204",
    "both streams": "SELECT 'req' AS kind, host FROM req [RANGE 10 MINUTES] UNION ALL SELECT 'beat', host FROM beat "
    "[RANGE 10 MINUTES]",
    "tags": "SELECT tag, COUNT(*) AS n FROM req [RANGE 30 MINUTES], UNNEST(tags) AS t(tag) GROUP BY tag",
    "without what is long": "SELECT * EXCLUDE (body, tags, path) REPLACE (upper(host) AS host) FROM req [NOW]",
    "a tag among others": "SELECT host, 'b' = ANY(tags) AS b FROM req [NOW] WHERE 'a' = ANY(tags)",
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_what_people_ask(name):
    """As the definition has it."""
    streams, tables = given()
    want = oracle(DECLARED + QUERIES[name], streams, tables)["q1"]
    assert want.num_rows
    assert_same(windrow.run(DECLARED + QUERIES[name], streams, tables, runtime="local")["q1"], want)


SPELLED = {
    "SELECT DISTINCT ON (usr) usr, path, ts FROM req [RANGE 1 HOUR] ORDER BY usr, ts DESC, path":
        "SELECT usr, path, ts FROM req [RANGE 1 HOUR] QUALIFY ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ts "
        "DESC, path) = 1",
    "SELECT DISTINCT ON (usr, host) usr, host, ts FROM req [RANGE 1 HOUR SLIDE 30 MINUTES] ORDER BY usr, host, "
    "ts LIMIT 3":
        "SELECT usr, host, ts FROM req [RANGE 1 HOUR SLIDE 30 MINUTES] QUALIFY ROW_NUMBER() OVER (PARTITION BY "
        "usr, host "
        "ORDER BY ts) = 1 ORDER BY usr, host, ts LIMIT 3",
    "SELECT quantile_cont(ms, [0.5, 0.9]) AS p FROM req [RANGE 1 HOUR]":
        "SELECT [quantile_cont(ms, 0.5), quantile_cont(ms, 0.9)] AS p FROM req [RANGE 1 HOUR]",
    "SELECT host, percentile(ms, 0.9) AS p, approx_percentile(ms, 0.5) AS q FROM req [RANGE 1 HOUR] GROUP BY host":
        "SELECT host, quantile_cont(ms, 0.9) AS p, approx_quantile(ms, 0.5) AS q FROM req [RANGE 1 HOUR] GROUP BY host",
    "SELECT host, sort_array(collect_list(usr)) AS l, sort_array(collect_set(usr)) AS s FROM req [RANGE 1 HOUR] "
    "GROUP BY host":
        "SELECT host, list_sort(list(usr)) AS l, list_sort(list(DISTINCT usr)) AS s FROM req [RANGE 1 HOUR] "
        "GROUP BY host",
    "SELECT host, explode(tags) AS t FROM req [NOW]": "SELECT host, UNNEST(tags) AS t FROM req [NOW]",
    "SELECT get_json_object(body, '$.user.name') AS n FROM req [NOW]":
        "SELECT json_extract_string(body, '$.user.name') AS n FROM req [NOW]",
    "SELECT from_utc_timestamp(ts, 'Europe/Berlin') AS t, convert_timezone('UTC', 'Asia/Tokyo', ts) AS u FROM "
    "req [NOW]":
        "SELECT ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' AS t, ts AT TIME ZONE 'UTC' AT TIME ZONE "
        "'Asia/Tokyo' "
        "AS u FROM req [NOW]",
    "SELECT date_bin(INTERVAL '5 minutes', ts, TIMESTAMP '2001-01-01') AS b, toStartOfHour(ts) AS h FROM req [NOW]":
        "SELECT time_bucket(INTERVAL '5 minutes', ts, TIMESTAMP '2001-01-01') AS b, date_trunc('hour', ts) AS h "
        "FROM req [NOW]",
    "SELECT host, COUNT(*) AS n FROM req GROUP BY host, TumblingWindow(minute, 30)":
        "SELECT host, COUNT(*) AS n FROM TUMBLE(req, ts, '30 min') GROUP BY host, window_start",
    "SELECT host, COUNT(*) AS n FROM req GROUP BY host, HoppingWindow(minute, 30, 10)":
        "SELECT host, COUNT(*) AS n FROM HOP(req, ts, '10 min', '30 min') GROUP BY host, window_start",
    "SELECT usr, COUNT(*) AS n FROM req GROUP BY usr, SessionWindow(minute, 10)":
        "SELECT usr, COUNT(*) AS n FROM SESSION(req PARTITION BY usr, ts, '10 min') GROUP BY usr, window_start",
    "SELECT approx_percentile(0.9, 0.01) WITHIN GROUP (ORDER BY ms) AS p FROM req":
        "SELECT quantile_disc(ms, 0.9) AS p FROM req",
    "SELECT time_slice(ts, 15, 'MINUTE') AS t, to_varchar(ts, 'YYYY-MM-DD') AS d, ucase(host) AS h, toHour(ts) AS o, "
    "formatDateTime(ts, '%H:%M') AS f, CAST(body AS JSONB)->>'n' AS n FROM req [NOW]":
        "SELECT time_bucket(INTERVAL '15 minutes', ts) AS t, strftime(ts, '%Y-%m-%d') AS d, upper(host) AS h, "
        "hour(ts) AS o, strftime(ts, '%H:%M') AS f, CAST(body AS JSON)->>'n' AS n FROM req [NOW]",
    "SELECT host, any(status) AS s, stddevPop(ms) AS d, varSamp(ms) AS v FROM req [RANGE 1 HOUR] GROUP BY host":
        "SELECT host, any_value(status) AS s, stddev_pop(ms) AS d, var_samp(ms) AS v FROM req [RANGE 1 HOUR] "
        "GROUP BY host",
    "SELECT arrayJoin(tags) AS tag, host FROM req [NOW]": "SELECT UNNEST(tags) AS tag, host FROM req [NOW]",
    "SELECT host FROM req [NOW] WHERE 'a' IN tags": "SELECT host FROM req [NOW] WHERE list_contains(tags, 'a')",
    "SELECT r.* EXCLUDE (body, tags, path, bytes) FROM req [NOW] r":
        "SELECT host, status, ms, usr, ts FROM req [NOW]",
}  # fmt: skip


@pytest.mark.parametrize("theirs", SPELLED)
def test_other_words(theirs):
    """What PostgreSQL, Spark, Snowflake and ClickHouse write is what is written here otherwise."""
    streams, tables = given()
    found = [windrow.run(DECLARED + q, streams, tables, runtime="local")["q1"] for q in (theirs, SPELLED[theirs])]
    assert found[1].num_rows
    assert_same(*found)


@pytest.mark.parametrize(
    ("query", "says", "hint"),
    [
        ("SELECT host FROM req WHERE ts < now() - INTERVAL '5 minutes'", "changes by itself", "[RANGE 5 MINUTES]"),
        ("CREATE STREAM slow AS SELECT host FROM req WHERE ms > 100", 'found "AS"', "CREATE QUERY slow AS SELECT"),
        ("INSERT INTO req VALUES (1)", 'found "INSERT"', "engine.push"),
        ("CREATE SOURCE z (a INT)", 'found "SOURCE"', "CREATE STREAM"),
        ("CREATE MATERIALIZED STREAM z (a INT)", 'found "MATERIALIZED"', "CREATE QUERY"),
        (
            "SELECT COUNT(*) FROM (SELECT *, NOW() AS p FROM req) b GROUP BY TUMBLE(b.p, INTERVAL '10' SECOND)",
            '"p" is not the time of a stream',
            "PROCTIME()",
        ),
        ("SELECT host, percentiles(ms) AS p FROM req GROUP BY host", 'unknown function "percentiles"', "percentile"),
        ("SELECT trunc(ts, 'HH') AS h FROM req", "type mismatch", "date_trunc('hour', ts)"),
        ("SELECT to_timestamp(path, 'yyyy') AS t FROM req", "type mismatch", "strptime"),
        ("SELECT round(host, 1) AS t FROM req", "type mismatch", "takes arguments of other types"),
        ("SELECT * EXCLUDE (hosts) FROM req", 'unknown column "hosts" in EXCLUDE', "host"),
    ],
)
def test_hints(query, says, hint):
    """What is refused says what to write."""
    streams, tables = given()
    with pytest.raises(WindrowError) as error:
        windrow.run(DECLARED + query, streams, tables, runtime="local")
    assert says in str(error.value) and hint in str(error.value)
