"""The scratch directory of a start: made, tried, and emptied of what others left in it."""

from pathlib import Path

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


def test_what_others_left_goes(tmp_path: Path) -> None:
    scratch.check_scratch(tmp_path)
    assert not [*tmp_path.iterdir()], "the probe is gone"
    left = tmp_path / "epoch-7-1"
    (left / "commits").mkdir(parents=True)
    (left / "commits" / "3").write_text("v1")
    (tmp_path / "epoch-6-1").write_text("no directory")
    (tmp_path / "spark.log").touch()
    scratch.clear_scratch(tmp_path)
    assert not left.exists()
    assert (tmp_path / "spark.log").exists()
