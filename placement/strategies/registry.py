"""Registers strategies by name: those of this package's modules, and those that users bring.

A built-in strategy is a class beside this module, based on `ByRules`; nothing lists it.

A plug-in is named by `package.module:ClassName` in the settings or on the command line. A stream's
record can only name a strategy that is known by then, so that records from Kafka never load code.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Any, cast

from placement.allocator import ByRules, Strategy
from placement.model import Code, Reason
from placement.policy import Balance, Policy
from placement.topology import Topology


def _find_built_in() -> Iterator[Strategy]:
    """Make one of each strategy that a module of this package defines."""
    package = sys.modules[__package__ or ""]
    for name in sorted(each.name for each in iter_modules(package.__path__)):
        module = f"{package.__name__}.{name}"
        if module != __name__:
            for found in vars(import_module(module)).values():
                is_strategy = isinstance(found, type) and issubclass(found, ByRules)
                if is_strategy and found.__module__ == module:
                    yield cast("Strategy", found())


_BY_NAME: dict[str, Strategy] = {
    name: strategy for strategy in _find_built_in() for name in (strategy.name, *strategy.aliases)
}

STRATEGIES: Mapping[str, Strategy] = _BY_NAME
"""Every strategy by its name and by each of its aliases."""


def register(strategy: Strategy) -> Reason | None:
    """Make one more strategy known, or say which name is taken; again the same is no change."""
    names = (strategy.name, *strategy.aliases)
    for name in names:
        known = _BY_NAME.get(name, strategy)
        if type(known) is not type(strategy):
            message = f"strategy '{name}' of {type(strategy).__qualname__} is known already: "
            return Reason(Code.POLICY_AMBIGUOUS, message + type(known).__qualname__)
    _BY_NAME.update(dict.fromkeys(names, strategy))
    return None


def defer_to(name: str, policy: Policy, topology: Topology) -> tuple[Strategy, Policy] | Reason:
    """Look up another strategy, with the policy as that strategy reads it.

    Rules and filters stay; its parameters, and what becomes of its own rules, are its defaults. For
    placers that defer to another.
    """
    strategy = STRATEGIES.get(name)
    if strategy is None:
        return Reason(Code.STRATEGY_UNKNOWN, f"unknown strategy '{name}'")
    parameters = strategy.compile({}, topology)
    if isinstance(parameters, Reason):
        return parameters
    return strategy, replace(
        policy,
        strategy=strategy.name,
        parameters=parameters,
        on_infeasible=parameters.get("on_infeasible", strategy.on_infeasible),
    )


# What is asked of a strategy, and what it may say besides: `placement.allocator.Strategy`.
_MEMBERS = (
    *("name", "aliases", "parameters", "on_infeasible", "on_shortage"),
    *("compile", "rules", "place", "extend"),
)
_HOOKS = {"find_fault": 3, "advice": 3, "resume": 4}
_TRAITS = ("balance", "has_leaders", "places_by_choice", "followers_on_suspect")


def enable(path: str) -> Reason | None:
    """Import and register the strategy at `package.module:ClassName`, or say what is wrong.

    The class is called without arguments. Its own errors while it is imported are not caught.
    """
    module_name, colon, class_name = path.partition(":")
    if not (colon and class_name.isidentifier() and _is_dotted(module_name)):
        return _reject(path, "expected package.module:ClassName")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        return _reject(path, str(error))
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        return _reject(path, f"{module_name} has no class {class_name}")
    strategy = _complete(found)()
    missing = [member for member in _MEMBERS if not hasattr(strategy, member)]
    if missing:
        return _reject(path, f"{class_name} has no {', '.join(missing)}")
    fault = next(_find_faults(strategy), None)
    if fault is not None:
        return _reject(path, f"{class_name} {fault}")
    taken = register(strategy)
    return _reject(path, taken.message) if taken else None


def _find_faults(strategy: Any) -> Iterator[str]:
    """Find faults in the optional members of a strategy: misspelt, or with wrong arguments.

    Names that begin with an underscore are the strategy's own.
    """
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
def _complete(found: type) -> type:
    """Derive a class with a default for every member that `found` does not bring."""
    return found if issubclass(found, ByRules) else type(found.__name__, (found, ByRules), {})


def _is_dotted(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _reject(path: str, why: str) -> Reason:
    return Reason(Code.STRATEGY_UNKNOWN, f"plugin '{path}': {why}")
