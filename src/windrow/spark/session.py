"""The Spark session: the user's, or a quiet local one of our own.

A session that is given or already active is used as it is: its settings are its owner's. Otherwise one is started,
after checking what can be checked before a JVM is: that Java is there and new enough, and that this Spark is one we
know. A missing Java then costs a tenth of a second and says so, instead of a gateway error.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import importlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING

from windrow.errors import WindrowError
from windrow.spark.archive import archive_options
from windrow.spark.unwrap import unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_java", "check_spark", "session", "unwrap"]

OLDEST_JAVA = 17
OLDEST_SPARK, BEFORE_SPARK = (4, 2), (5, 0)

_LOG = logging.getLogger("windrow.spark")

_SOURCE = str(Path(__file__).resolve().parents[2])

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than a tick's small job gains
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
}


_LOCAL = {  # executors elsewhere must be able to call back, and have their own windrow
    "spark.python.daemon.module": "windrow.spark.daemon",
    # over TCP a task may wait 40 ms for the acknowledgement of a few bytes, which its worker delays
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.executorEnv.PYTHONPATH": _SOURCE,
    "spark.driver.extraJavaOptions": (  # optimise what is hot, not what starts
        "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
        "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> SparkSession:
    """The session to run on: `spark`, else the active one, else a new one on `master` (WINDROW_MASTER, `local[*]`)."""
    check_spark(spark.version if spark is not None else None)
    from pyspark.sql import SparkSession

    # mapInArrow imports pandas and warns about its version, though no pandas is on the path.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors are raised; not twice, please
    found = spark or SparkSession.getActiveSession()
    if found is not None:
        return found
    check_java()
    chosen = master or os.environ.get("WINDROW_MASTER") or "local[*]"
    return _start(chosen, {**_defaults(chosen), **(settings or {})}, verbose)


def _defaults(master: str) -> dict[str, str]:
    made = {**_SETTINGS, "spark.sql.shuffle.partitions": str(_cores(master))}
    if master.startswith("local"):
        made |= {**_LOCAL, "spark.driver.memory": _memory()}
    return made


def _start(master: str, settings: Mapping[str, str], verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Python has nothing to do while a JVM starts
    threading.Thread(target=importlib.import_module, args=("windrow.spark.live",), daemon=True).start()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    conf = SparkConf().setMaster(master).setAppName("windrow").setAll(list(settings.items()))
    if verbose:
        with _importable():
            return SparkSession.builder.config(conf=conf).getOrCreate()
    profile = str(files("windrow.spark").joinpath("log4j2.properties"))
    options = conf.get("spark.driver.extraJavaOptions", "") or ""
    if master.startswith("local"):
        options = f"{options} {archive_options(_jars(), shutil.which(_java()) or '')}"
    conf.set("spark.driver.extraJavaOptions", f"{options} -Dlog4j2.configurationFile=file:{profile}".strip())
    # What the JVM itself prints (module notices, a crash) goes to a file; users see it only when the start fails.
    with tempfile.NamedTemporaryFile("w+", prefix="windrow-spark-", suffix=".log", delete=False) as log:
        try:
            if SparkContext._gateway is None:
                with _importable():
                    gateway = launch_gateway(conf, popen_kwargs={"stderr": log})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway, conf=conf)
            started = SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            raise _not_started(error, log) from error
    atexit.register(_forget, log.name)
    _LOG.debug("spark %s started on %s, its log is %s", started.version, master, log.name)
    return started


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Let the Python workers of a JVM started here import this windrow, installed or not."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _not_started(error: Exception, log: IO[str]) -> WindrowError:
    log.seek(0)
    said = [line.strip() for line in log.read().splitlines() if line.strip()]
    telling = [line for line in said if re.search(r"error|exception|cannot|could not", line, re.I)] or said
    return WindrowError(
        "Spark did not start",
        detail=telling[0] if telling else unwrap(error).primary,
        hint=f"the whole log is {log.name}; `windrow run --runtime local` needs no Spark",
    )


def check_spark(version: str | None = None) -> None:
    """Refuse a Spark that windrow does not know: `version` of a running session, else the one installed."""
    if version is None:
        try:
            from pyspark import __version__
        except ImportError as error:
            raise WindrowError(
                "PySpark is not installed",
                detail=str(error),
                hint="pip install pyspark, or use runtime='local', which needs no Spark",
            ) from error
        version = _version_in(os.environ.get("SPARK_HOME")) or __version__
        if _pair(version) != _pair(__version__):
            raise WindrowError(
                f"SPARK_HOME holds Spark {version}, but the installed PySpark is {__version__}",
                detail=f"SPARK_HOME is {os.environ['SPARK_HOME']}",
                hint=f"pip install pyspark=={version}, or unset SPARK_HOME",
            )
    if not OLDEST_SPARK <= _pair(version) < BEFORE_SPARK:
        raise WindrowError(
            f"Spark {version} is not supported",
            detail=f"windrow needs Spark {_dotted(OLDEST_SPARK)} or newer, before {_dotted(BEFORE_SPARK)}",
            hint="pip install \"pyspark>=4.3,<4.4\", or use runtime='local', which needs no Spark",
        )


def check_java() -> int:
    """The major version of the Java that Spark will run on; none or too old a one is refused."""
    java = _java()
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        where = (
            f"JAVA_HOME is {os.environ['JAVA_HOME']}"
            if os.environ.get("JAVA_HOME")
            else "JAVA_HOME is not set and no java is on PATH"
        )
        raise WindrowError(
            "Java was not found",
            detail=f"Spark runs on Java; {where}",
            hint=f"install Java {OLDEST_JAVA} or newer (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME; "
            "runtime='local' (--runtime local) needs no Java",
        ) from None
    said = asked.stderr + asked.stdout
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = 0 if match is None else int(match[2] or 0) if match[1] == "1" else int(match[1])
    if major < OLDEST_JAVA:
        raise WindrowError(
            f"Java {major or 'of an unknown version'} is too old" if match else "the java command is not Java",
            detail=f"{java} says: {said.strip().splitlines()[0] if said.strip() else 'nothing'}",
            hint=f"install Java {OLDEST_JAVA} or newer and set JAVA_HOME to it; "
            "runtime='local' (--runtime local) needs no Java",
        )
    return major


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java") or "java"


def _jars() -> str:
    import pyspark

    return os.path.join(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__), "jars")


def _version_in(spark_home: str | None) -> str | None:
    jars = glob.glob(os.path.join(spark_home, "jars", "spark-core_*.jar")) if spark_home else []
    match = re.search(r"spark-core_[\d.]+-(\d+(?:\.\d+)+)", jars[0]) if jars else None
    return match[1] if match else None


def _pair(version: str) -> tuple[int, int]:
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _dotted(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"


def _memory() -> str:
    """A quarter of what there is, for a JVM in which everything runs; Spark's own gigabyte is soon full."""
    found = [32 << 30]
    with contextlib.suppress(ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in _LIMITS:  # of a container
        with contextlib.suppress(ValueError, OSError):
            found.append(int(Path(limit).read_text(encoding="ascii")))
    return f"{max(1024, min(found) // 4 >> 20)}m"


def _cores(master: str) -> int:
    """Parallelism of a local master; 8 for a cluster, where the user knows better.

    >>> _cores("local[3]"), _cores("local"), _cores("local-cluster[2,1,1024]"), _cores("spark://host:7077")
    (3, 1, 2, 8)
    """
    if master == "local":
        return 1
    match = re.match(r"local\[(\d+|\*)", master)
    if match:
        return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])
    match = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    return int(match[1]) * int(match[2]) if match else 8
