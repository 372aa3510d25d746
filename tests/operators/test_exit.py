"""A process that ends while threads compute ends quietly: no leak report of the scalar engine's binding, no abort."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from windrow.operators.at_exit import ExitGate

BUSY = """
import threading
import pyarrow as pa
from windrow.operators import scalar

begun = threading.Event()
column = {"x": pa.array(range(50_000))}

def compute():
    while True:
        scalar.evaluate(column, 50_000, [('sqrt("x") + sin("x")', pa.float64())])
        begun.set()

for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
begun.wait()
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """A program run by an interpreter of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_process_may_end_while_threads_compute():
    """Three threads inside DuckDB when the main thread is done."""
    done = ended(BUSY)
    assert (done.returncode, done.stderr) == (0, "")


UNSTOPPED = """
import sys, pathlib, tempfile, windrow

folder = pathlib.Path(tempfile.mkdtemp())
engine = windrow.Engine(runtime="local")
engine.execute(f\"\"\"
    CREATE STREAM bid (auction BIGINT, name VARCHAR, ts BIGINT) TIMESTAMP BY ts RETAIN 100;
    CREATE STREAM filed (a BIGINT, ts BIGINT) TIMESTAMP BY ts FROM csv (path => '{folder}', header => true);
    CREATE QUERY fails AS SELECT json_extract(name, '$.a') FROM bid [RANGE 10];
    CREATE QUERY goes AS SELECT upper(name), MEDIAN(auction) FROM bid [RANGE 10] GROUP BY 1;
\"\"\")
engine.start()
for ts in range(3):
    engine.push("bid", [{"auction": ts, "name": "z", "ts": ts}])
(folder / "bad.csv").write_text("a,ts\\nx,y\\n")
try:
    engine.drain()
except windrow.WindrowError:
    pass
engine.ask("SELECT lower(name) FROM bid [RANGE 10]")
"""


def test_an_engine_that_nobody_stopped_ends_quietly():
    """Neither its threads nor what it keeps of a query and of a stream that failed hold anything of the binding."""
    done = ended(UNSTOPPED)
    assert done.returncode == 0
    assert "leaked" not in done.stderr
    assert "query fails" in done.stderr  # what it logged is all it says


def test_a_closed_gate_waits_for_calls_and_lets_no_thread_in():
    """The main thread still passes: what is stopped at exit may have to compute."""
    gate, inside, leave, passed = ExitGate(), threading.Event(), threading.Event(), threading.Event()

    def call():
        with gate:
            inside.set()
            leave.wait()

    def late():
        with gate:
            passed.set()

    threading.Thread(target=call, daemon=True).start()
    inside.wait()
    threading.Timer(0.05, leave.set).start()
    gate.close()
    assert leave.is_set()
    threading.Thread(target=late, daemon=True).start()
    with gate:
        assert not passed.wait(0.1)
    gate.reopen()
    with gate:
        pass
