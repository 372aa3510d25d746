"""The same queries on other engines, timed and compared: native Structured Streaming, Flink SQL and Esper.

A caller describes a query once (`SlidingAggregate` or `WindowJoin`), gets windrow's text of it from `query.cql()`,
writes the streams once (`write_streams`), and gives both to each peer:

    write_streams(place, {"trades": trades})
    total = {"total": "SUM(price * volume)"}
    queries = [SlidingAggregate("q1", "trades", 60 * SECOND, 10 * SECOND, total, where="volume > 100")]
    for peer in (StructuredStreaming(), Flink(), Esper()):
        result = peer.run(queries, place)                 # .seconds, .answers, .parts, .about
        assert not compare(ours, result.answers)          # {query: readable difference}

`seconds` is from handing over the queries to the last answer: planning, reading the files, and the answers where the
engine's sink puts them (Arrow in this process; files for Flink). Starting the session or the cluster and a first tiny
run that loads classes are not in it. `parts` says where Flink's time went: `plan` is the planner, `job` what Flink
itself calls the runtime, `start` the cluster's start that was taken off. Peers get their best honest case: everything
available at once, so the fewest micro-batches.

What is done on the peer's side so that the answers must be equal, never changing what the query means:

* windrow's windows are `(t - range, t]`, theirs `[start, end)`: their event time is ours less its smallest unit.
* Flink's event time counts milliseconds: `ceil(ts) - 1 ms` puts a row in exactly the same windows when range and slide
  are whole milliseconds (others are refused). Joins test the microseconds beside it.
* Structured Streaming gives a window when the watermark has passed it: one row far in the future follows the last file.
  Flink ends a bounded stream by itself. Windows after the last row are dropped from both: a replay ends there.
* Peers give no row for an empty window; an aggregate without GROUP BY gets the row that SQL gives it.
* A slide longer than the range is no window for Structured Streaming: it becomes a tumbling window over the rows
  inside.
* Flink's HOP table function wants a range that is a multiple of the slide; for others it is the next longer multiple,
  and a condition on the window's start cuts off the rest.

A static table is a broadcast join in Spark; in Flink, whose regular joins lose event time, a temporal join with a table
that has one version, and an UNNEST where several rows share a key.
"""

from windrow_bench.peers.answers import Peer, PeerResult, compare, extrapolate
from windrow_bench.peers.esper import Esper
from windrow_bench.peers.feed import write_streams
from windrow_bench.peers.flink import Flink
from windrow_bench.peers.queries import SECOND, Lookup, PeerQuery, Selection, SlidingAggregate, Window, WindowJoin
from windrow_bench.peers.structured import StructuredStreaming

__all__ = [
    "SECOND",
    "Esper",
    "Flink",
    "Lookup",
    "Peer",
    "PeerQuery",
    "PeerResult",
    "Selection",
    "SlidingAggregate",
    "StructuredStreaming",
    "Window",
    "WindowJoin",
    "compare",
    "extrapolate",
    "write_streams",
]
