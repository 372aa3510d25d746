"""From what Spark raises to the message that matters.

A failure in a Python worker arrives as text, wrapped in Java traces and often in the failure of a streaming query.
The last Python traceback in it is what happened; a windrow error raised in a worker is rebuilt from its own text, so
it reads the same wherever it was raised. A failure of Spark itself keeps its first sentence. The Java trace is kept
in `java_trace`, for whoever asks.
"""

from __future__ import annotations

import re

from windrow import errors
from windrow.errors import RuntimeFailure, SourceError, StateError, WindrowError

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_LIBRARY = re.compile(r"site-packages|dist-packages|/pyspark|/py4j/|<frozen|/lib/python3|[/\\]windrow[/\\]")
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.S)
_NOISE = re.compile(r"\s*SQLSTATE: \w+;?( line \d+( pos \d+)?;?)?")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*")
_WRAPPED = re.compile(r"^\[(STREAM_FAILED|FOREACH_BATCH_USER_FUNCTION_ERROR)\].*?(?=\[[A-Z_.]+\]|\Z)", re.S)
# One exception of a Java trace: its class, then its message up to the frames, the next cause or the end.
_THROWN = re.compile(
    r"(?:^|\n)(?:Caused by: |: )?(?:[a-z]\w*\.)+[A-Z][\w$]*(?:: |(?=\n|\Z))"
    r"(.*?)(?=\n\s+at |\nCaused by: |\n\s*\.\.\. \d+ more|\Z)",
    re.S,
)
_EMPTY = ("Exception thrown in awaitResult", "Job aborted", "An error occurred while calling", "Task failed while")

_LOST = re.compile(
    r"Python worker (exited|failed|did not)|PYTHON_WORKER_|ExecutorLostFailure|ExecutorDeadException|worker lost"
    r"|Stream closed|EOFException|Broken pipe|Connection reset|Socket closed|FetchFailed"
)
# Conditions, and messages without one, that blame the input.
_BAD_INPUT = (
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE",
    "MALFORMED_",
    "CANNOT_PARSE",
    "UNABLE_TO_INFER_SCHEMA",
    "INVALID_CSV",
    "KAFKA_DATA_LOSS",
)
_BAD_INPUT_TEXT = ("CSV header", "is not a Parquet file")


def unwrap(error: BaseException) -> WindrowError:
    """A WindrowError that says what happened; the Java stack trace, if any, is its `java_trace`."""
    if isinstance(error, WindrowError):
        return error
    text = re.sub(r"\n=== Streaming Query ===.*", "", _text(error), flags=re.S)
    trace = _java_trace(error)
    made = _from_python(text) or _from_java(text, trace or text)
    made.java_trace = trace  # type: ignore[attr-defined]
    made.__cause__ = error
    return made


def lost(error: BaseException) -> bool:
    """Whether a worker or an executor went away, so that the same job may succeed when it is run again."""
    if isinstance(error, WindrowError):
        return False
    text = f"{_text(error)}\n{_java_trace(error) or ''}"
    return _from_python(text) is None and _LOST.search(text) is not None


def workers_lost(error: BaseException, times: int) -> WindrowError:
    """What to say when it did not."""
    made = RuntimeFailure(
        f"the workers of Spark went away {times} times while one tick was computed",
        detail="they were killed, ran out of memory, or a function of a query ends its process",
        hint="give the workers more memory (spark.executor.memoryOverhead), or drop the query; then start again",
    )
    made.java_trace = _java_trace(error) or _text(error)  # type: ignore[attr-defined]
    return made


def _text(error: BaseException) -> str:
    described = getattr(error, "_desc", None)
    return str(described) if described else str(error) or type(error).__name__


def _java_trace(error: BaseException) -> str | None:
    trace = getattr(error, "_stackTrace", None)
    if trace:
        return str(trace)
    return str(error) if type(error).__name__ == "Py4JJavaError" else None


def _from_python(text: str) -> WindrowError | None:
    _, found, tail = text.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = tail.lstrip("\n").splitlines()
    frames = [m for m in map(_FRAME.match, lines) if m]
    start = next((i for i, line in enumerate(lines) if line and not line[0].isspace()), None)
    raised = _RAISED.match("\n".join(lines[start:]).strip()) if start is not None else None
    if raised is None:
        return None
    if raised["type"].startswith(("py4j.", "pyspark.")):  # the driver's Python only passed it on
        return _from_java(raised["message"] or "", raised["message"] or "")
    return _rebuilt(raised) or _user_failure(raised, frames)


def _rebuilt(raised: re.Match[str]) -> WindrowError | None:
    module, _, name = raised["type"].rpartition(".")
    kind = getattr(errors, name, None) if module == "windrow.errors" else None
    if kind is None or not issubclass(kind, WindrowError):
        return None
    body, hint = _split(_clean(raised["message"] or ""), "\nhint: ")
    primary, detail = _split(body, "\ndetail: ")
    return kind(primary, detail=detail, hint=hint)


def _split(text: str, mark: str) -> tuple[str, str | None]:
    before, found, after = text.partition(mark)
    return (before.strip(), after.strip()) if found else (text.strip(), None)


def _user_failure(raised: re.Match[str], frames: list[re.Match[str]]) -> WindrowError:
    name, message = raised["type"].rpartition(".")[2], _clean(raised["message"] or "")
    if name == "ModuleNotFoundError" and "windrow" in message:
        return RuntimeFailure(
            "the Python workers of Spark cannot import windrow",
            detail=message,
            hint="install windrow in the Python that the executors run (PYSPARK_PYTHON)",
        )
    own = [f for f in frames if not _LIBRARY.search(f["file"])]
    what = f"{name}: {message}" if message else name
    if not frames:
        return RuntimeFailure(f"a Python worker raised {what}")
    at = (own or frames)[-1]
    return RuntimeFailure(f'function "{at["function"]}" raised {what}', detail=f"{at['file']}, line {at['line']}")


def _from_java(text: str, trace: str) -> WindrowError:
    everything = f"{text}\n{trace}"
    found = [
        m for m in map(_sentence, [_WRAPPED.sub("", text), *_THROWN.findall(trace)]) if m and not m.startswith(_EMPTY)
    ]
    messages = list(dict.fromkeys(found)) or [_sentence(text)]
    primary, detail = messages[0], "; ".join(messages[1:4]) or None
    if "No space left on device" in everything:
        return StateError(
            "the disk is full",
            detail=primary,
            hint="free some space and start again with the same home; it goes on from the last complete tick",
        )
    bad = any(c.startswith(_BAD_INPUT) for c in _CONDITION.findall(everything)) or any(
        t in everything for t in _BAD_INPUT_TEXT
    )
    if bad:
        return SourceError(primary, detail=detail, hint="fix or remove the input and start again with the same home")
    return RuntimeFailure(primary, detail=detail)


def _sentence(message: str) -> str:
    """A message on one line, without its codes and class."""
    lines = message.split("\n\tat ")[0].split("\n'")[0].split("\n+- ")[0]
    bare = re.sub(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: ", "", _CONDITION.sub("", _clean(lines)).strip())
    return " ".join(bare.split())


def _clean(text: str) -> str:
    return _NOISE.sub("", text).strip()
