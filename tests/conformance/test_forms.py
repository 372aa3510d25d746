"""Forms of SQL that other forms say: constants in FROM, semi-joins, LATERAL VIEW and the like."""

from __future__ import annotations

import pytest
from tests.brought import DECLARED, answer, check_all_rows, check_windows, given

from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

TEXTS = [
    "SELECT r.host, v.label FROM req {w} r JOIN (VALUES (200, 'ok'), (404, 'missing')) AS v(code, label) "
    "ON r.status = v.code",
    "SELECT r.host, v.label FROM req {w} r LEFT JOIN (VALUES (200, 'ok'), (404, 'missing')) AS v(code, label) "
    "ON r.status = v.code",
    "SELECT v.label, COUNT(r.status) AS n FROM (VALUES (200, 'ok'), (999, 'never')) AS v(code, label) "
    "LEFT JOIN req {w} r ON r.status = v.code GROUP BY v.label",
    "SELECT v.label, r.host FROM req {w} r RIGHT JOIN (VALUES (200, 'ok'), (999, 'never')) AS v(code, label) "
    "ON r.status = v.code",
    "WITH names(code, label) AS (VALUES (200, 'ok'), (500, 'broken')) SELECT label, COUNT(*) AS n FROM req {w} "
    "JOIN names ON status = code GROUP BY label",
    "SELECT * FROM beat {w}, (VALUES (1), (2)) v(i)",
    "SELECT host FROM req {w} WHERE status NOT IN (SELECT c FROM (VALUES (200), (404)) v(c))",
    "WITH a(h, n) AS (SELECT host, COUNT(*) FROM req {w} GROUP BY host) SELECT h, n FROM a WHERE n > 3",
    "SELECT id, g FROM orders {w}, generate_series(1, 2) AS t(g)",
    "SELECT i.range AS n, COUNT(b.host) AS c FROM range(3) i LEFT JOIN beat {w} b ON b.host = 'h' || i.range "
    "GROUP BY i.range",
    "SELECT g.h, COUNT(r.host) AS n FROM generate_series(TIMESTAMP '2024-03-30 22:00:00', TIMESTAMP "
    "'2024-03-31 02:00:00', INTERVAL '1 hour') AS g(h) LEFT JOIN req {w} r ON date_trunc('hour', r.ts) = g.h "
    "GROUP BY g.h",
    "SELECT u.x, COUNT(b.host) AS n FROM UNNEST(['h0', 'h7']) AS u(x) LEFT JOIN beat {w} b ON b.host = u.x "
    "GROUP BY u.x",
    "SELECT host FROM beat {w} UNION ALL SELECT 'fixed'",
    "SELECT host FROM req {w} UNION SELECT host FROM beat {w} EXCEPT SELECT 'h1'",
    "SELECT host FROM req {w} WHERE host IN (SELECT 'h1' UNION ALL SELECT 'h2')",
    "SELECT host, ts FROM req {w} SEMI JOIN info USING (host)",
    "SELECT * FROM beat {w} ANTI JOIN info USING (host) WHERE host > 'a'",
    "SELECT [upper(x) FOR x IN tags IF x <> 'b'] AS u, [x || host FOR x IN tags] AS v FROM req {w}",
    "SELECT host, path ~* 'V1' AS m, path !~* 'V2' AS n FROM req {w}",
    "SELECT sym, ts, AVG(price) OVER w AS mid, 2 * STDDEV_POP(price) OVER w AS band FROM trade {w} WINDOW w AS "
    "(PARTITION BY sym ORDER BY ts, price, qty, side ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
    "SELECT DISTINCT ON (host) host, ts, status FROM req {w} WHERE bytes > 0 ORDER BY host, ts DESC, bytes",
    "SELECT host, status, COUNT(*) AS n FROM req {w} GROUP BY host, status QUALIFY RANK() OVER (PARTITION BY host "
    "ORDER BY n DESC) = 1",
]
SPELLED = {
    "SELECT host, ms FROM req {w} WHERE ms BETWEEN SYMMETRIC 150 AND 20":
        "SELECT host, ms FROM req {w} WHERE ms BETWEEN 20 AND 150",
    "SELECT r.host, r.ts FROM req {w} r LEFT SEMI JOIN beat {w} i ON r.host = i.host AND i.ts < r.ts":
        "SELECT host, ts FROM req {w} r WHERE EXISTS (SELECT 1 FROM beat {w} i WHERE r.host = i.host AND i.ts < r.ts)",
    "SELECT r.host, r.ts FROM req {w} r LEFT ANTI JOIN beat {w} i ON r.host = i.host AND i.ts < r.ts":
        "SELECT host, ts FROM req {w} r WHERE NOT EXISTS (SELECT 1 FROM beat {w} i WHERE r.host = i.host "
        "AND i.ts < r.ts)",
    "SELECT usr, ts FROM req {w} ORDER BY ts DESC LIMIT 2 BY usr":
        "SELECT usr, ts FROM req {w} QUALIFY ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ts DESC) <= 2",
    "SELECT host, ts FROM req {w} LIMIT ALL": "SELECT host, ts FROM req {w}",
    "SELECT i.host, ARRAY(SELECT b.ts FROM beat {w} b WHERE b.host = i.host ORDER BY b.ts) AS t FROM info i":
        "SELECT i.host, coalesce((SELECT list(b.ts ORDER BY b.ts) FROM beat {w} b WHERE b.host = i.host), []) AS t "
        "FROM info i",
    "SELECT host FROM req {w} WHERE body IS JSON AND path IS NOT JSON":
        "SELECT host FROM req {w} WHERE json_valid(body) AND NOT json_valid(path)",
    "SELECT id FROM orders {w} WHERE (ts, ts + INTERVAL 1 HOUR) OVERLAPS (TIMESTAMP '2024-03-31 01:00:00', "
    "TIMESTAMP '2024-03-31 00:00:00')":
        "SELECT id FROM orders {w} WHERE ts < TIMESTAMP '2024-03-31 01:00:00' AND ts + INTERVAL 1 HOUR > TIMESTAMP "
        "'2024-03-31 00:00:00'",
    "SELECT id, item.sku FROM orders {w} LATERAL VIEW explode(items) t AS item":
        "SELECT id, u.item.sku FROM orders {w}, UNNEST(items) AS u(item)",
    "SELECT * FROM (SELECT host, status, ms FROM req {w}) PIVOT (SUM(ms) AS total, COUNT(*) AS n FOR status IN (200, "
    "404 AS missing)) AS p":
        'SELECT host, SUM(ms) FILTER (WHERE status = 200) AS "200_total", COUNT(*) FILTER (WHERE status = 200) AS '
        '"200_n", SUM(ms) FILTER (WHERE status = 404) AS missing_total, COUNT(*) FILTER (WHERE status = 404) AS '
        "missing_n FROM req {w} GROUP BY host",
    "SELECT p.ts, p.h1 FROM beat {w} PIVOT (COUNT(*) FOR host IN ('h0', 'h1')) AS p WHERE p.h0 = 0":
        "SELECT ts, COUNT(*) FILTER (WHERE host = 'h1') AS h1 FROM beat {w} GROUP BY ts HAVING COUNT(*) FILTER "
        "(WHERE host = 'h0') = 0",
    "SELECT host, tag FROM req {w} LATERAL VIEW OUTER explode(tags) t AS tag":
        "SELECT host, u.tag FROM req {w} r LEFT JOIN UNNEST(r.tags) AS u(tag) ON TRUE",
    "SELECT host, i, tag FROM req {w} LATERAL VIEW posexplode(tags) t AS i, tag":
        "SELECT host, u.i - 1 AS i, u.tag FROM req {w}, UNNEST(tags) WITH ORDINALITY AS u(tag, i)",
    "SELECT i.host, t.path, t.n FROM info i, LATERAL (SELECT path, COUNT(*) AS n FROM req {w} WHERE req.host = i.host "
    "GROUP BY path ORDER BY n DESC LIMIT 2) AS t":
        "SELECT i.host, t.path, t.n FROM info i JOIN (SELECT host, path, COUNT(*) AS n FROM req {w} GROUP BY host, "
        "path QUALIFY ROW_NUMBER() OVER (PARTITION BY host ORDER BY COUNT(*) DESC, path NULLS LAST) <= 2) AS t "
        "ON t.host = i.host",
    "SELECT i.host, l.ts FROM info i LEFT JOIN LATERAL (SELECT ts FROM beat {w} b WHERE b.host = i.host ORDER BY ts "
    "DESC LIMIT 1) l ON TRUE":
        "SELECT i.host, l.ts FROM info i LEFT JOIN (SELECT host, MAX(ts) AS ts FROM beat {w} b GROUP BY host) l ON "
        "l.host = i.host",
    "SELECT r.host, i.team FROM req {w} r LEFT JOIN (beat {w} b JOIN info i ON b.host = i.host) ON r.host = b.host":
        "SELECT r.host, x.team FROM req {w} r LEFT JOIN (SELECT i.team, b.host AS h FROM beat {w} b JOIN info i ON "
        "b.host = i.host) x ON r.host = x.h",
    "SELECT id, sku, q FROM orders {w} CROSS JOIN UNNEST(items) AS t (sku, q)":
        "SELECT id, u.i.sku AS sku, u.i.qty AS q FROM orders {w}, UNNEST(items) AS u(i)",
    "SELECT id, sku, q, n FROM orders {w} CROSS JOIN UNNEST(items) WITH ORDINALITY AS t (sku, q, n)":
        "SELECT id, u.i.sku AS sku, u.i.qty AS q, u.n FROM orders {w}, UNNEST(items) WITH ORDINALITY AS u(i, n)",
    "SELECT sym, side, total FROM (SELECT sym, SUM(qty) FILTER (WHERE side = 'buy') AS buy, SUM(qty) FILTER (WHERE "
    "side = 'sell') AS sell FROM trade {w} GROUP BY sym) UNPIVOT (total FOR side IN (buy, sell AS sold)) AS u":
        "SELECT sym, 'buy' AS side, SUM(qty) AS total FROM trade {w} WHERE side = 'buy' GROUP BY sym HAVING SUM(qty) "
        "IS NOT NULL UNION ALL SELECT sym, 'sold', SUM(qty) FROM trade {w} WHERE side = 'sell' GROUP BY sym HAVING "
        "SUM(qty) IS NOT NULL",
    "SELECT host, what, n FROM (SELECT host, status, bytes FROM req {w}) UNPIVOT INCLUDE NULLS (n FOR what IN (status, "
    "bytes))":
        "SELECT host, 'status' AS what, CAST(status AS BIGINT) AS n FROM req {w} UNION ALL SELECT host, 'bytes', bytes "
        "FROM req {w}",
    "SELECT host, what, n FROM req {w} UNPIVOT (n FOR what IN (status, bytes))":
        "SELECT host, 'status' AS what, CAST(status AS BIGINT) AS n FROM req {w} WHERE status IS NOT NULL UNION ALL "
        "SELECT host, 'bytes', bytes FROM req {w} WHERE bytes IS NOT NULL",
    "SELECT ts, sym, AVG(price) AS a FROM trade {w} SAMPLE BY 1h":
        "SELECT date_trunc('hour', ts) AS ts, sym, AVG(price) AS a FROM trade {w} GROUP BY date_trunc('hour', ts), sym",
    "SELECT sym, MAX(price) AS h, COUNT(*) AS n FROM trade {w} WHERE qty > 2 SAMPLE BY 30m ALIGN TO CALENDAR":
        "SELECT sym, MAX(price) AS h, COUNT(*) AS n FROM trade {w} WHERE qty > 2 GROUP BY sym, "
        "time_bucket(INTERVAL 30 MINUTE, ts)",
    "SELECT ts AS week, COUNT(*) AS n FROM trade {w} SAMPLE BY 1w":
        "SELECT date_trunc('week', ts)::TIMESTAMP AS week, COUNT(*) AS n FROM trade {w} GROUP BY 1",
    "SELECT * FROM beat {w} LATEST ON ts PARTITION BY host":
        "SELECT host, MAX(ts) AS ts FROM beat {w} GROUP BY host",
    "SELECT host, COUNT(*) AS n FROM (SELECT * FROM beat {w} WHERE host <> 'h1' LATEST ON ts PARTITION BY host) q "
    "GROUP BY host":
        "SELECT host, 1 AS n FROM beat {w} WHERE host <> 'h1' GROUP BY host",
    "SELECT sym, MAX(COLUMNS('^(price|qty)$')) FROM trade {w} GROUP BY sym":
        "SELECT sym, MAX(price) AS price, MAX(qty) AS qty FROM trade {w} GROUP BY sym",
    "SELECT COLUMNS(['price', 'QTY']) * 2 FROM trade {w}":
        "SELECT price * 2 AS price, qty * 2 AS qty FROM trade {w}",
    "SELECT MIN(COLUMNS('^(p|q)')) AS \"least_\\1\", COUNT(COLUMNS(t.* EXCLUDE (ts, side))) FROM trade {w} t":
        "SELECT MIN(price) AS least_p, MIN(qty) AS least_q, COUNT(sym) AS sym, COUNT(price) AS price, COUNT(qty) AS "
        "qty FROM trade {w}",
    "SELECT ts, coalesce(*COLUMNS(['sym', 'side'])) AS s FROM trade {w}":
        "SELECT ts, coalesce(sym, side) AS s FROM trade {w}",
    "SELECT * ILIKE 'S%' FROM trade {w}": "SELECT sym, side FROM trade {w}",
    "SELECT t.* LIKE '%i%' FROM trade {w} t": "SELECT price, side FROM trade {w} t",
    "SELECT * SIMILAR TO '[pq].*' FROM trade {w}": "SELECT price, qty FROM trade {w}",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    """As DuckDB has it over all rows, and at every instant as the definition does."""
    check_all_rows(text)
    check_windows(text)


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("ORDER BY status DESC FETCH FIRST 2 ROWS WITH TIES", "QUALIFY RANK() OVER (ORDER BY status DESC) <= 2"),
        ("ORDER BY bytes DESC, ts OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY", "ORDER BY bytes DESC, ts LIMIT 2 OFFSET 1"),
    ],
)
def test_fetch(text, theirs):
    """FETCH FIRST is LIMIT, with those that tie with the last or without."""
    select = "SELECT usr, status, bytes, ts FROM req {w} "
    check_windows(select + text)
    check_windows(select + text, select + theirs)


@pytest.mark.parametrize("text", SPELLED)
def test_spelled(text):
    """What DuckDB does not read is what it reads otherwise."""
    check_all_rows(text, SPELLED[text])
    check_windows(text, SPELLED[text])


def test_constants_beside_windows_of_the_standard():
    """A list of values meets the rows of TUMBLE, and is there in windows without rows as well."""
    text = (
        "SELECT v.code, COUNT(r.status) AS n FROM TUMBLE(req, ts, INTERVAL '30' MINUTE) r JOIN (VALUES (200), (500)) "
        "v(code) ON r.status = v.code GROUP BY v.code"
    )
    assert_same(answer(text), oracle(f"{DECLARED} CREATE QUERY q AS {text}", *given())["q"])


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("SELECT host FROM req TABLESAMPLE 10 PERCENT", "TABLESAMPLE", "hash(id)"),
        ("SELECT ts, AVG(ms) FROM req SAMPLE BY 1h FILL(PREV)", "FILL in SAMPLE BY", "generate_series"),
        ("SELECT ts, AVG(ms) FROM req SAMPLE BY 1h ALIGN TO FIRST OBSERVATION", "ALIGN in SAMPLE BY", "CALENDAR"),
        ("SELECT ts, AVG(ms) FROM req SAMPLE BY 1x", "SAMPLE BY 1x is not a length of time", "1M or 1y"),
        ("SELECT ts, AVG(ms) FROM (SELECT * FROM req) SAMPLE BY 1h", "SAMPLE BY needs a stream", "time_bucket"),
        ("SELECT COLUMNS('zzz') FROM req", "no column is called like 'zzz'", "columns are host"),
        ("SELECT COLUMNS(['hots']) FROM req", 'unknown column "hots" in COLUMNS', '"host"'),
        ("SELECT COLUMNS(lambda c: c LIKE 'h%') FROM req", "COLUMNS of this kind", "a pattern"),
        ("SELECT COLUMNS('host') || COLUMNS('path') FROM req", "different COLUMNS", "an item for each"),
        ("SELECT host FROM req WHERE COLUMNS(*) IS NULL", "only an item of a select list", "name the columns"),
        ("SELECT * FROM (SELECT * FROM req) PIVOT (AVG(ms) FOR host IN ('a'))", "PIVOT", "FILTER"),
        ("SELECT * FROM (SELECT * FROM req) UNPIVOT (v FOR n IN (ms, bytes))", "PIVOT", "UNION ALL"),
        ("WITH RECURSIVE n(i) AS (SELECT 1) SELECT i FROM n, req", "WITH RECURSIVE", "generate_series"),
        (
            "SELECT n, COUNT(*) AS m FROM info i, LATERAL (SELECT COUNT(*) AS n FROM req WHERE req.host = i.host) l "
            "GROUP BY n",
            "LATERAL",
            "(SELECT COUNT(*) FROM s WHERE s.k = i.k)",
        ),
        ("SELECT 1 AS one", "needs FROM", "name a stream"),
        ("SELECT i FROM (VALUES (1)) v(i)", "at least one stream", "add a stream"),
        ("SELECT o.id FROM orders o, generate_series(1, o.customer) AS t(g)", "no constant", "whole number"),
    ],
)
def test_hints(text, says, hint):
    """What is refused says what to write."""
    with pytest.raises(WindrowError) as error:
        answer(text)
    assert says in str(error.value) and hint in str(error.value)
