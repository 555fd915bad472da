"""Strategies that users bring: `package.module:ClassName`, enabled by whoever runs the process.

Only settings and the command line name what is imported. A stream's record can name no more than a
strategy that is known by then, so that what comes in over Kafka never loads code.
"""

from importlib import import_module

from placement.reasons import Code, Reason
from placement.strategies import register

# What is asked of a strategy; see `placement.strategies.base.Strategy`.
_MEMBERS = (
    *("name", "aliases", "parameters", "on_infeasible", "on_shortage"),
    *("compile", "rules", "place", "extend"),
)


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
    strategy = found()
    missing = [member for member in _MEMBERS if not hasattr(strategy, member)]
    if missing:
        return _wrong(path, f"{class_name} has no {', '.join(missing)}")
    taken = register(strategy)
    return _wrong(path, taken.message) if taken else None


def _is_dotted(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _wrong(path: str, why: str) -> Reason:
    return Reason(Code.STRATEGY_UNKNOWN, f"plugin '{path}': {why}")
