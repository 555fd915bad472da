"""The guide to location awareness: what it shows is what is answered, and what it says is so."""

import re
import shlex
from pathlib import Path

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.locations import read_locations
from streaming.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "streaming" / "README.md").read_text("utf-8").split("## Location awareness")[1]
GUIDE = GUIDE.split("\n## ")[0]


def below_quorum(file: str, *lost: str) -> list[str]:
    command = ["check", f"deploy/examples/{file}.yaml", "--output", "json"]
    command += [word for domain in lost for word in ("--lose", domain)]
    result = CliRunner().invoke(app, command)
    found = orjson.loads(result.stdout)["lost"]["below_quorum"]
    return sorted({each["stream"] for each in found})


@pytest.mark.parametrize("block", re.findall(r"```console\n\$ (.*?)```", GUIDE, re.DOTALL))
def test_the_guide_shows_what_is_answered(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    command, *shown = block.strip().splitlines()
    result = CliRunner().invoke(app, shlex.split(command.removeprefix("placer ")))
    answered = "\n".join(line.rstrip() for line in result.stdout.splitlines())
    assert shown
    assert "\n".join(shown) in answered


def test_what_survives_which_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    sites = ("/a", "/b", "/c", "/d", "/e")
    assert all(below_quorum("survive", site) == [] for site in sites)
    pairs = [(one, other) for one in sites for other in sites if one < other]
    assert {name for pair in pairs for name in below_quorum("survive", *pair)} == {"one"}
    assert below_quorum("two_sites", "/a") == ["majority"]
    assert below_quorum("two_sites", "/b") == []


def test_the_mapping_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    path = tmp_path / "places.yaml"
    path.write_text("\n".join(line.strip() for line in shown.splitlines()), "utf-8")
    assert yaml.safe_load(path.read_text("utf-8"))
    places = read_locations(path)
    assert places.locate("n7", "10.1.2.3") == "/eu/az2/rack1"
    assert places.locate("n8", "10.1.2.3:9042") == "/eu/az1/rack1"
    assert places.locate("n8", "db-9.example") == "/eu/az9/unknown"


def test_settings_that_the_guide_names_exist() -> None:
    named = re.findall(r"`(location|quotas)\.([a-z_]+)", GUIDE)
    assert named
    settings = Settings()
    for section, name in named:
        assert hasattr(getattr(settings, section), name), f"{section}.{name}"
