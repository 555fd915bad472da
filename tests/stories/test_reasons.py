"""Reasons in stories are plain English: none uses a word that only this project's code uses.

Method: each line of a story that has a reason code is read behind the code.
"""

import re
from pathlib import Path

from placement.model import Code

TESTS = Path(__file__).parents[1]
# Words of earlier reasons that operators had to read twice, each with its plain one.
PRIVATE_WORDS = {
    "aside": "beside, except",
    "as things are": "the nodes there are",
    "asked for": "need",
    "come and went": "went down or came back",
    "finds no": "no ... can take",
    "held with": "repair is held",
    "lawful": "within the rules",
    "room": "capacity",
    "stood on": "the replicas of",
    "taken in": "admitted",
    "told": "say",
    "wanted": "need",
}
_REASON = re.compile(rf"\b({'|'.join(map(re.escape, Code))})\)?:? (?P<message>.+)")
_PRIVATE = re.compile(rf"\b({'|'.join(PRIVATE_WORDS)})\b")


def reasons() -> dict[str, Path]:
    """The messages of all reasons that stories show, each with a story that has it."""
    found = {}
    for path in sorted(TESTS.glob("**/testdata/*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = _REASON.search(line)
            if match and not line.startswith("#"):
                found[match["message"]] = path
    return found


def test_reasons_use_no_private_word() -> None:
    found = reasons()
    assert len(found) > 100, "the stories show their reasons in another form"
    private = [(str(path), text) for text, path in found.items() if _PRIVATE.search(text)]
    assert private == []
