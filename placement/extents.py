"""Stretches of a column: which are taken, so that what a dropped stream leaves is used again."""

from bisect import bisect_left


class Extents:
    """The free stretches below `end`; everything from there on is free too."""

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []

    def take(self, count: int) -> int:
        """The first place of a stretch of so many: the first gap that is long enough, or the
        end."""
        for place, (first, length) in enumerate(self._free):
            if length >= count:
                self._free[place : place + 1] = (
                    [(first + count, length - count)] if length > count else []
                )
                return first
        first, self.end = self.end, self.end + count
        return first

    def give(self, first: int, count: int) -> None:
        """The stretch is free again; neighbours become one."""
        place = bisect_left(self._free, (first, 0))
        if place < len(self._free) and self._free[place][0] == first + count:
            count += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == first:
            place -= 1
            first, before = self._free.pop(place)
            count += before
        if first + count == self.end:
            self.end = first
        else:
            self._free.insert(place, (first, count))
