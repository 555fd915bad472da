"""The table of needs in the README names every need and every story of one."""

import re
from pathlib import Path

NEEDS = Path(__file__).parent


def test_readme_names_every_need_and_every_story_of_one() -> None:
    rows = [
        line for line in (NEEDS / "README.md").read_text().splitlines() if line.startswith("| N")
    ]
    needs = [int(n) for row in rows for n in re.findall(r"N(\d+)", row.split("|")[1])]
    assert needs == [*range(1, 29)]
    named = {name for row in rows for name in re.findall(r"`(n\d\d_\w+\.txt)`", row)}
    assert named == {path.name for path in (NEEDS / "testdata").glob("n*.txt")}
