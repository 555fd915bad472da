"""The JVM is started as Spark's own launcher would, and its faults are told."""

import os
import subprocess
from pathlib import Path

import pytest

from streaming.runtime import find_java
from streaming.settings import load_settings
from streaming.spark import JvmFailed, start_session
from streaming.spark.jvm import (
    LAUNCHER_OPTIONS,
    class_archive,
    make_class_path,
    make_command,
    spark_home,
    use_archive,
)

CONF = {
    "spark.driver.memory": "300m",
    "spark.driver.defaultJavaOptions": "-Da=1",
    "spark.driver.extraJavaOptions": '-Xss4m "-Db=two words"',
    "spark.app.name": "it",
}
MAIN = "org.apache.spark.deploy.SparkSubmit"


def test_it_has_the_options_of_sparks_launcher() -> None:
    java = find_java()
    jars = f"{spark_home() / 'jars'}/*"
    settings = [word for pair in CONF.items() for word in ("--conf", "=".join(pair))]
    asked = [str(java.executable), "-cp", jars, "org.apache.spark.launcher.Main", MAIN]
    environment = os.environ | {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    said = subprocess.run(
        [*asked, *settings, "pyspark-shell"], env=environment, capture_output=True, check=True
    ).stdout.decode()
    launchers = [word for word in said.replace("\0", "\n").split("\n") if word.strip()]
    ours = make_command(java, CONF)
    end = launchers.index(MAIN)
    first = launchers.index("-cp") + 2
    assert launchers[first:end] == ours[3 : ours.index(MAIN)]
    assert ours[3:7] == ["-Xmx300m", "-Da=1", "-Xss4m", "-Db=two words"]
    assert sorted(launchers[end:]) == sorted(ours[ours.index(MAIN) :])
    assert set(LAUNCHER_OPTIONS) <= {*ours}


def test_settings_of_a_cluster_are_on_the_class_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    places = make_class_path({"spark.driver.extraClassPath": "/first.jar"})
    assert places[0] == "/first.jar"
    assert str(tmp_path) in places
    assert any(Path(each).name.startswith("spark-core_") for each in places)


def test_an_archive_is_for_one_java_and_its_jars(tmp_path: Path) -> None:
    java, jar = find_java(), tmp_path / "a.jar"
    jar.write_text("one")
    before = class_archive(java, [str(jar)])
    assert class_archive(java, [str(jar)]) == before
    jar.write_text("three")
    assert class_archive(java, [str(jar)]) != before
    assert use_archive(tmp_path / "missing.jsa") == []
    assert f"-XX:SharedArchiveFile={jar}" in use_archive(jar)


def test_a_jvm_that_does_not_start_says_why(tmp_path: Path) -> None:
    settings = load_settings(None, {"checkpoint": tmp_path})
    session = start_session(settings, ["-Xmx1k"])
    with pytest.raises(JvmFailed, match=r"it printed: .*heap"):
        session.finish()
    session.abandon()


def test_a_session_that_nobody_finishes_leaves_nothing(tmp_path: Path) -> None:
    session = start_session(load_settings(None, {"checkpoint": tmp_path}))
    process = session._jvm.process
    session.abandon()
    assert process.poll() is not None
    session.abandon()
