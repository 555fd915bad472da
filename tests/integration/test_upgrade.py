"""Rolling upgrades: the last released program and this one follow each other in the role."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import System
from tests.integration.test_standby import ask, check, register, start, wait_writer, writer
from tests.systems.application import Application

ROOT = Path(__file__).parents[2]
# The last commit of 0.2.0.
RELEASED = "4f9c8a451ed1cbdb8589fc4a24e1be69829ee86f"
# Each replaces the active process by the other program: five upgrades, and five rollbacks.
UPGRADES = 10


def unpack_release(into: Path) -> Path:
    """Write the released program below `into`; skips where the history is not at hand."""
    archive = into / "released.tar"
    command = ["git", "archive", "--output", str(archive), RELEASED, "placement", "schemas"]
    made = subprocess.run(
        [*command, "streaming", "deploy", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the commit of 0.2.0 is not in this clone: {made.stderr.strip()}")
    found = into / "released"
    found.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", found], check=True)
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_versions_follow_each_other(own_system: System, tmp_path: Path) -> None:
    """Each process is replaced by the other version: it stands by, and the active one is ended."""
    system = own_system
    programs = {"old": unpack_release(tmp_path), "new": ROOT}

    def launch(number: int) -> Application:
        version = ("old", "new")[number % 2]
        return start(system, f"{version}{number}", "--ha", PYTHONPATH=str(programs[version]))

    active = launch(0)
    active.wait_ready()
    assert writer(system) == (1, "old0")
    register(system)
    ask(system, "stream0")
    for number in range(1, UPGRADES + 1):
        following = launch(number)
        following.wait_standing_by()
        ask(system, f"beside{number}")
        active.send(signal.SIGTERM)
        assert active.wait_end() == 0, active.output
        assert wait_writer(system, number + 1) == f"{('old', 'new')[number % 2]}{number}"
        ask(system, f"stream{number}")
        active = following
    check(system)
