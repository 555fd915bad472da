"""The scratch directory of a start: tried, shared, and cleared of what killed processes left."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.spark import scratch


def test_a_directory_that_does_not_serve_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    # Nothing listens there, which is not even found out.
    result = CliRunner().invoke(
        app, ["run", "--bootstrap", "127.0.0.1:1", "--checkpoint", str(below)]
    )
    assert result.exit_code == 3
    _starting, line = result.output.splitlines()
    assert f"{below}: Not a directory" in line
    assert "name another scratch directory" in line


def test_processes_share_a_directory_and_what_killed_ones_left_goes(tmp_path: Path) -> None:
    spark = cast("SparkSession", None)
    scratch.check_scratch(tmp_path)
    assert not [*tmp_path.iterdir()], "the probe is gone"
    (tmp_path / "spark.log").touch()
    with scratch.hold_scratch(spark, tmp_path, "main", 7) as active:
        left = tmp_path / "placer-query-left"
        shutil.copytree(active, left)
        (left / "nodes" / "commits").mkdir(parents=True)
        (tmp_path / "placer-query-file").write_text("no directory")
        with scratch.hold_scratch(spark, tmp_path, "main", None) as rehearsal:
            assert not left.exists()
            assert rehearsal != active
            assert [*Path(rehearsal).glob("nodes")] == []
        assert Path(active).exists()
        assert not Path(rehearsal).exists()
    assert not Path(active).exists()
    assert (tmp_path / "spark.log").exists()


class HadoopFiles:
    """Hadoop's file system, as far as it is asked here, on a directory of this machine."""

    def mkdirs(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def globStatus(self, path: Path) -> list[Any]:  # noqa: N802
        return [_Status(found) for found in path.parent.glob(path.name)]

    def delete(self, path: Path, recursive: bool) -> None:
        assert recursive
        shutil.rmtree(path, ignore_errors=True)


class _Path(type(Path())):  # type: ignore[misc]
    def getName(self) -> str:  # noqa: N802
        return str(self.name)


class _Status:
    def __init__(self, path: Path) -> None:
        self._path = path

    def getPath(self) -> Path:  # noqa: N802
        return _Path(self._path)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is reached by URI."""

    def ask(_spark: SparkSession, place: str, question: Callable[..., None]) -> None:
        def path(*parts: Any) -> Path:
            return _Path("/".join(str(each).removeprefix("hdfs://") for each in parts))

        question(HadoopFiles(), path(place), path)

    monkeypatch.setattr(scratch, "_ask", ask)
    return tmp_path / "shared"


def test_on_a_shared_file_system_a_writer_clears_what_earlier_writers_left(remote: Path) -> None:
    spark, uri = cast("SparkSession", None), f"hdfs://{remote}/"
    with scratch.hold_scratch(spark, uri, "placement.main", 7) as active:
        assert active.startswith(f"hdfs://{remote}/placement.main-epoch-7-")
    others = ["placement.main-epoch-8-1", "placement.other-epoch-3-1", "epoch-x", "mine"]
    others += ["placement.main-epoch-x", f"placement.main-rehearsal-{time.time_ns()}"]
    gone = ["placement.main-epoch-6-1", "placement.main-epoch-7-1", "placement.main-rehearsal-1"]
    for name in [*others, *gone]:
        (remote / name).mkdir()
    with scratch.hold_scratch(spark, uri, "placement.main", None) as rehearsal:
        made = Path(rehearsal.removeprefix("hdfs://"))
        made.mkdir()
        assert made.parent == remote
        assert {each.name for each in remote.iterdir()} == {*others, *gone, made.name}
    assert not made.exists(), "a rehearsal removes its own and nothing else"
    assert {each.name for each in remote.iterdir()} == {*others, *gone}
    with scratch.hold_scratch(spark, uri, "placement.main", 8) as second:
        Path(second.removeprefix("hdfs://")).mkdir()
        assert {each.name for each in remote.iterdir()} == {*others, Path(second).name}
