"""The order of causes: complete, and the one that the README shows."""

from pathlib import Path

from placement import repair
from placement.model import Cause
from placement.repair.priority import CAUSES, rank_of


def test_every_cause_has_its_place_and_none_comes_last() -> None:
    assert set(CAUSES) == set(Cause)
    assert sorted([None, *Cause], key=rank_of) == [*CAUSES, None]


def test_the_readme_quotes_the_table() -> None:
    page = (Path(repair.__file__).parent / "README.md").read_text("utf-8")
    head = "| cause | when a shard has it |\n|---|---|\n"
    rows = "".join(f"| `{cause}` | {when} |\n" for cause, when in CAUSES.items())
    assert f"\n\n{head}{rows}\n" in page
