"""What is wrong with Java or Spark is said before a JVM starts; a session that starts is quiet."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from windrow import errors
from windrow.errors import WindrowError
from windrow.spark import session as module
from windrow.spark.session import check_java, check_spark, session


def fake_java(folder, says):
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return str(folder)


def test_no_java(monkeypatch, tmp_path):
    """Without Java the message says how to get one, and that the local runtime needs none."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WindrowError, match="Java was not found") as caught:
        check_java()
    assert "local" in caught.value.hint


def test_wrong_java_home(monkeypatch, tmp_path):
    """A JAVA_HOME without a Java is named."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(WindrowError, match="Java was not found") as caught:
        check_java()
    assert str(tmp_path / "gone") in caught.value.detail


@pytest.mark.parametrize(("says", "major"), [('openjdk version "11.0.2" 2019', 11), ('java version "1.8.0_292"', 8)])
def test_old_java(monkeypatch, tmp_path, says, major):
    """Too old a Java is refused with its version."""
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, says))
    with pytest.raises(WindrowError, match=f"Java {major} is too old") as caught:
        check_java()
    assert "17" in caught.value.hint


@pytest.mark.parametrize(("says", "major"), [('openjdk version "17.0.15" 2025', 17), ('openjdk version "25" 2025', 25)])
def test_new_java(monkeypatch, tmp_path, says, major):
    """A new enough Java is fine."""
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, says))
    assert check_java() == major


def test_not_java(monkeypatch, tmp_path):
    """Something else called java is refused."""
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, "coffee"))
    with pytest.raises(WindrowError, match="not Java"):
        check_java()


@pytest.mark.parametrize("version", ["3.5.1", "4.1.0", "5.0.0"])
def test_wrong_spark(version):
    """A Spark before or after the ones we know is refused with the range."""
    with pytest.raises(WindrowError, match=f"Spark {version} is not supported") as caught:
        check_spark(version)
    assert "4.2" in caught.value.detail


def test_right_spark():
    """The installed Spark is one we know."""
    check_spark()
    check_spark("4.3.0-SNAPSHOT")


def test_spark_home_of_another_version(monkeypatch, tmp_path):
    """A SPARK_HOME that does not match PySpark is refused."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(WindrowError, match=r"SPARK_HOME holds Spark 3\.5\.1"):
        check_spark()


def test_nothing_starts_when_java_is_missing(monkeypatch, tmp_path):
    """The check comes before the JVM."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_start", lambda *_: pytest.fail("started"))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(WindrowError, match="Java was not found"):
        session()


def test_memory_within_a_container(monkeypatch, tmp_path):
    """A local session takes a quarter of what its container may have, at least 1 and at most 8 GB."""
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(module, "_LIMITS", (str(limit),))
    monkeypatch.setattr(module.os, "sysconf", lambda name: 1 << 20)
    for text, wanted in ((str(6 << 30), "1536m"), (str(1 << 30), "1024m"), ("max", "8192m")):
        limit.write_text(text)
        assert module._memory() == wanted


@pytest.mark.spark
def test_uses_the_session_that_is_there(spark):
    """A session given or active is used as it is."""
    assert session() is spark
    assert session(spark) is spark
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.spark
def test_workers_are_talked_to_without_tcp(spark):
    """Where a local session can, it uses sockets of Unix: over TCP every task of an RDD takes 40 ms longer."""
    if not (spark.sparkContext.master or "").startswith("local") or not hasattr(socket, "AF_UNIX"):
        pytest.skip("workers are elsewhere, or there are no such sockets")
    told = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["PYTHON_UNIX_DOMAIN_ENABLED"].lower())
    assert told.collect() == ["true"]


@pytest.mark.spark
@pytest.mark.slow
def test_start_is_quiet(tmp_path):
    """Starting, working and failing print nothing that nobody asked for; the second start has the first's archive."""
    script = (
        "from windrow.spark.session import session\n"
        "spark = session(master='local[1]')\n"
        "print(spark.range(3).mapInArrow(lambda bs: bs, 'id long').toArrow().num_rows)\n"
        "try: spark.sql('SELECT nope')\n"
        "except Exception: print('caught')\n"
        "java = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()\n"
        "print(sum('-XX:SharedArchiveFile' in str(option) for option in java.getInputArguments()))\n"
        "spark.stop()\n"
    )
    source = str(Path(errors.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "XDG_CACHE_HOME": str(tmp_path), "WINDROW_CLASS_ARCHIVE": "on"}
    for archived in ("0", "1"):
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.stdout.split() == ["3", "caught", archived], done.stderr
        assert done.stderr == ""
