"""Says which extra of the installation brings a package that a command misses.

A light installation has the client library and no planner, no stream and no console. What each
extra brings is read from the metadata of the installed distribution, where `pyproject.toml` put it.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

from streaming.errors import StreamingError

DISTRIBUTION = "placement-reconciler"
# What modules are called where it is not the name of their distribution.
_DISTRIBUTIONS = {"google": "protobuf"}


class ExtraMissing(StreamingError):
    """A command needs a package that a light installation does not have."""


def explain_missing(error: ModuleNotFoundError) -> ExtraMissing | None:
    """Say which extra brings the module; None where it is of no extra, which is a bug."""
    module = (error.name or "").partition(".")[0]
    wanted = _DISTRIBUTIONS.get(module, module).lower()
    # Of an extra that stands on another one the metadata repeats everything; the other is enough.
    extras = sorted((extra for name, extra in _requirements() if name == wanted), key=_size)
    if not extras:
        return None
    return ExtraMissing(
        f"this needs {wanted}, which this installation does not have; install it with: "
        f"pip install '{DISTRIBUTION}[{extras[0]}]'"
    )


def _size(extra: str) -> int:
    """Count what an extra brings."""
    return sum(each == extra for _, each in _requirements())


def _requirements() -> Iterator[tuple[str, str]]:
    """Yield (distribution, extra) of all that extras bring."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from a folder of sources that nobody installed
        lines = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", line)
        if name is not None and extra is not None:
            yield name.group().lower(), extra.group(1)
