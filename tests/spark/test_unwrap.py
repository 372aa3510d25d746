"""What Spark raises becomes one message that matters."""

import pytest

from windrow.errors import RuntimeFailure, SourceError, StateError
from windrow.spark.unwrap import unwrap

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/app/kernel.py", line 12, in kernel
    midcap(b)
  File "/app/rules.py", line 9, in midcap
    raise ValueError("price is negative: -3")
ValueError: price is negative: -3
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 0216eabd]"""


class Captured(Exception):
    def __init__(self, desc, trace=None, cause=None):
        super().__init__(desc)
        self._desc, self._stackTrace, self._cause = desc, trace, cause


def test_windrow_errors_pass():
    """A windrow error is itself."""
    error = StateError("x")
    assert unwrap(error) is error


def test_user_function_is_named():
    """A function that raises is named with its exception and place; the Java trace is kept aside."""
    made = unwrap(Captured(WORKER, "org.apache.spark...\n\tat java"))
    assert isinstance(made, RuntimeFailure)
    assert str(made) == 'function "midcap" raised ValueError: price is negative: -3\ndetail: /app/rules.py, line 9'
    assert made.java_trace.startswith("org.apache")


def test_last_traceback_counts():
    """Of tracebacks within tracebacks the innermost is what happened, and libraries are not to blame."""
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "/x/site-packages/py4j/clientserver.py", line 644, in _call_proxy\nPythonException: An exception:\n'
        "Traceback (most recent call last):\n"
        '  File "/app/rules.py", line 3, in score\n    np.linalg.inv(a)\n'
        '  File "/x/site-packages/numpy/linalg.py", line 88, in inv\n    raise\n'
        "numpy.linalg.LinAlgError: Singular matrix\n"
    )
    assert unwrap(Captured(text)).primary == 'function "score" raised LinAlgError: Singular matrix'


def test_windrow_error_of_a_worker_is_rebuilt():
    """A windrow error raised in a worker comes back with its class, detail and hint."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/windrow/spark/runs.py", line 120, in read\n    raise _torn()\n'
        "windrow.errors.StateError: corrupt run /h/runs/x\ndetail: the checksum differs\nhint: restore home\n"
        " SQLSTATE: 39000"
    )
    made = unwrap(Captured(text))
    assert type(made) is StateError
    assert (made.primary, made.detail, made.hint) == ("corrupt run /h/runs/x", "the checksum differs", "restore home")


def test_first_sentence_of_spark():
    """A failure of Spark keeps its sentence, without codes, class names and stack."""
    made = unwrap(Captured("[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1\n'Project"))
    assert made.primary.startswith("A column `x` cannot be resolved")
    assert "SQLSTATE" not in made.primary


def test_full_disk_of_spark():
    """Spark's own scratch disk filling up is said so."""
    assert unwrap(Captured("java.io.IOException: No space left on device")).primary == "the disk is full"


@pytest.mark.spark
def test_worker_errors(spark):
    """A real worker's failure, alone and inside a streaming query, gives the same message."""

    def midcap(batch):
        raise ValueError(f"bad batch of {batch.num_rows}")

    def kernel(batches):
        for batch in batches:
            midcap(batch)
            yield batch

    with pytest.raises(Exception, match="worker") as caught:
        spark.range(4, numPartitions=1).mapInArrow(kernel, "id long").toArrow()
    made = unwrap(caught.value)
    assert made.primary == 'function "midcap" raised ValueError: bad batch of 4'
    assert "\n" not in made.primary
    assert "at org.apache.spark" in made.java_trace


@pytest.mark.spark
def test_streaming_failure(spark, tmp_path):
    """A failure inside foreachBatch of a streaming query is the message of that failure."""

    def on_batch(frame, batch_id):
        raise StateError("cannot write x", detail="full", hint="free some")

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n')
    stream = spark.readStream.schema("id long").json(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(tmp_path / "cp")).start()
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        query.awaitTermination(60)
    made = unwrap(caught.value)
    assert type(made) is StateError
    assert (made.primary, made.detail, made.hint) == ("cannot write x", "full", "free some")


@pytest.mark.spark
def test_missing_path(spark):
    """A path that is not there is a source error in one sentence."""
    with pytest.raises(Exception, match="PATH_NOT_FOUND") as caught:
        spark.read.parquet("/nowhere/at/all")
    made = unwrap(caught.value)
    assert isinstance(made, SourceError)
    assert made.primary == "Path does not exist: file:/nowhere/at/all."
