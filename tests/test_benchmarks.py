"""The command of the benchmarks: an option is honoured or refused, wherever it stands."""

import pytest
from typer.testing import CliRunner

from tests.benchmarks.__main__ import app


@pytest.mark.parametrize("benchmark", ["placement", "planning", "resources", "latency", "recovery"])
@pytest.mark.parametrize("option", [("--quick",), ("--output", "json")])
def test_an_option_before_the_name_is_refused(option: tuple[str, ...], benchmark: str) -> None:
    """Goal: `--quick planning` does not run the whole of it."""
    result = CliRunner().invoke(app, [*option, benchmark])
    assert (result.exit_code, f"{benchmark} --quick" in result.stderr) == (2, True)
