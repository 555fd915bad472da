"""What operators suffer from elsewhere, told as stories: a file for each need that is a planner's.

The needs N1 to N28 come from reports on other systems, `seed…` are the stories of our sources. The
language is that of `tests/story.py`; `pytest tests/simulation/test_needs.py --rewrite` renews the
answers, and the diff has to be read line by line.
"""

import re
from pathlib import Path

import pytest

from tests.datadriven import run_file
from tests.story import Story

STORIES = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.txt")), ids=lambda path: path.stem)
def test_need(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Story().answer, request.config.getoption("--rewrite"))


def test_readme_names_every_need_and_every_story_of_one() -> None:
    rows = [
        line for line in (STORIES / "README.md").read_text().splitlines() if line.startswith("| N")
    ]
    needs = [int(n) for row in rows for n in re.findall(r"N(\d+)", row.split("|")[1])]
    assert needs == [*range(1, 29)]
    named = {name for row in rows for name in re.findall(r"`(n\d\d_\w+\.txt)`", row)}
    assert named == {path.name for path in STORIES.glob("n*.txt")}
