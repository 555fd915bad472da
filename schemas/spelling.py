"""Names that are spelt nearly like a known one: what a sentence suggests, and what is refused.

A suggestion may be wrong and costs nothing. A field is refused only where it can hardly be anything
but a typing error, as a message may carry fields that this version does not know yet.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache

# Names of fewer letters differ by one letter without being related: `id` and `ip`.
_LETTERS_MIN = 4
# From so many letters on two slips are likelier than another word: `replicaton_facter`.
_LETTERS_OF_TWO_SLIPS = 10
_SUGGESTED_MAX = 3


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """End a sentence with the names that an unknown one resembles; empty if it resembles none."""
    near = get_close_matches(name, known, _SUGGESTED_MAX)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def find_meant_field(name: str, absent: Iterable[str]) -> str | None:
    """Find the field, among those not given, that an unknown field misspells.

    It is the same but for capitals and separators (`replicationFactor`), or one slip away, two in
    a long name: a letter wrong, missing, too many, or two swapped. The first letter is right, and
    numbers do not count: `tags2` is a name of its own.
    """
    given = _letters(name)
    if re.search(r"\d", given):
        return None
    near = []
    for field in absent:
        letters = _letters(field)
        most = _allowed_slips(len(letters))
        if given[:1] == letters[:1] and abs(len(given) - len(letters)) <= most:
            slips = _count_slips(given, letters)
            near += [(slips, field)] if slips <= most else []
    return min(near)[1] if near else None


@lru_cache(maxsize=1024)
def _letters(name: str) -> str:
    return re.sub(r"[_\-. ]", "", name).lower()


def _allowed_slips(letters: int) -> int:
    if letters < _LETTERS_MIN:
        return 0
    return 2 if letters >= _LETTERS_OF_TWO_SLIPS else 1


def _count_slips(one: str, other: str) -> int:
    """Compute the optimal string alignment distance of two words."""
    before: list[int] = []
    now = list(range(len(other) + 1))
    for row, mine in enumerate(one, 1):
        earlier, before, now = before, now, [row]
        for column, theirs in enumerate(other, 1):
            changed = before[column - 1] + (mine != theirs)
            slips = min(changed, before[column] + 1, now[-1] + 1)
            if row > 1 and column > 1 and (mine, one[row - 2]) == (other[column - 2], theirs):
                slips = min(slips, earlier[column - 2] + 1)
            now.append(slips)
    return now[-1]
