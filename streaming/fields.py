"""The fields of the core's values, as the bodies of records name them."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are set, inherited ones first."""
    names, get = _FIELDS[type(value)]
    return {name: each for name, each in zip(names, get(value), strict=False) if each is not None}


class _Fields(dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]]):
    """By kind the names of its fields and what gets them all at once: a batch may be a million
    records."""

    def __missing__(self, kind: type[Any]) -> Any:
        names: tuple[str, ...] = kind.__match_args__
        # Of one name it would give the bare value.
        get = attrgetter(*names, names[0])
        self[kind] = names, get
        return self[kind]


_FIELDS = _Fields()
