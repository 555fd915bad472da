"""Each scenario of `deploy/examples` on a real broker and Spark ends in what its file claims.

`tests/streaming/simulator/test_claims.py` plays the same files in simulated time."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
# The last one runs processes of the example store, which cannot be simulated.
SCENARIOS = [*sorted((EXAMPLES / "scenarios").glob("*.yaml")), EXAMPLES / "store" / "kills.yaml"]
# Of the flapping, which lasts longest, and a start of Spark beside other work.
TIMEOUT_SECONDS = 420


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS + 30)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_ends_in_what_it_claims(path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "streaming.cli", "demo", "--scenario", str(path)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all claims of the scenario hold" in result.stdout
