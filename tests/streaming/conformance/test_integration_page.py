"""Goal: each step of `deploy/integration.md` does what the page shows.

Method: a program of the page is written to a file, its command is run as it stands, and the last
line is that of the page.
"""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from streaming.runtime import EmbeddedBroker
from tests.test_tidy import ROOT

PAGE = (ROOT / "deploy" / "integration.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PROBES = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SHOWN = re.findall(r"^\$ placer (conformance .*)\n(.*)\n```", PAGE, re.MULTILINE)


def test_the_page_has_its_steps() -> None:
    assert (len(PROGRAMS), len(PROBES), len(SHOWN)) == (2, 1, 3)


@pytest.mark.long
@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=["empty", "files", "examined"])
def test_a_step_does_what_the_page_shows(
    command: str,
    shown: str,
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    placer: Callable[..., Result],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORE", "store")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}:/usr/bin:/bin")
    shutil.copytree(ROOT / "deploy" / "examples", "deploy/examples")
    names = ("executor.py", "examined.py", "holds.sh")
    for name, program in zip(names, PROGRAMS + PROBES, strict=True):
        Path(name).write_text(program, "utf-8")
    words = shlex.split(command)
    ran = placer(words[0], "--bootstrap", broker.bootstrap_servers, *words[1:])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[-1] == shown
