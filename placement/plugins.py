"""Strategies that users bring: `package.module:ClassName`, enabled by whoever runs the process.

Only settings and the command line name what is imported. A stream's record can name no more than a
strategy that is known by then, so that what comes in over Kafka never loads code.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from placement.allocator import ByRules
from placement.model import Code, Reason
from placement.policy import Balance
from placement.strategies import register

# What is asked of a strategy, and what it may say besides: `placement.allocator.base.Strategy`.
_MEMBERS = (
    *("name", "aliases", "parameters", "on_infeasible", "on_shortage"),
    *("compile", "rules", "place", "extend"),
)
_HOOKS = {"unfit": 3, "advice": 3, "resume": 4}
_TRAITS = ("balance", "has_leaders", "places_by_choice", "followers_on_suspect")


def enable(path: str) -> Reason | None:
    """Import and register the strategy at `package.module:ClassName`, or say what is wrong.

    The class is called without arguments. Its own errors while it is imported are not caught.
    """
    module_name, colon, class_name = path.partition(":")
    if not (colon and class_name.isidentifier() and _is_dotted(module_name)):
        return _wrong(path, "expected package.module:ClassName")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        return _wrong(path, str(error))
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        return _wrong(path, f"{module_name} has no class {class_name}")
    strategy = _completed(found)()
    missing = [member for member in _MEMBERS if not hasattr(strategy, member)]
    if missing:
        return _wrong(path, f"{class_name} has no {', '.join(missing)}")
    fault = next(_faults(strategy), None)
    if fault is not None:
        return _wrong(path, f"{class_name} {fault}")
    taken = register(strategy)
    return _wrong(path, taken.message) if taken else None


def _faults(strategy: Any) -> Iterator[str]:
    """What is wrong with the members that a strategy may bring: misspelt, or not callable as they
    are called. Names that begin with an underscore are the strategy's own."""
    known = (*_MEMBERS, *_HOOKS, *_TRAITS)
    for name in (name for name in dir(strategy) if not name.startswith("_") and name not in known):
        meant = get_close_matches(name, (*_HOOKS, *_TRAITS), n=1, cutoff=0.85)
        if meant:
            yield f"has '{name}': did you mean '{meant[0]}'? Its own names may begin with '_'"
    for name, count in _HOOKS.items():
        try:
            signature(getattr(strategy, name)).bind(*[None] * count)
        except (TypeError, ValueError):
            yield f"has '{name}', which does not take {count} arguments"
    if not isinstance(strategy.balance, Balance):
        yield f"has 'balance', which is not one of {', '.join(map(str, Balance))}"


@cache
def _completed(found: type) -> type:
    """The class with a default for every member that it does not bring."""
    return found if issubclass(found, ByRules) else type(found.__name__, (found, ByRules), {})


def _is_dotted(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _wrong(path: str, why: str) -> Reason:
    return Reason(Code.STRATEGY_UNKNOWN, f"plugin '{path}': {why}")
