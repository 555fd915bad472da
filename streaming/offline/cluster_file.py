"""Writes cluster files: the live state for `placer export`, a placed file for `place --output
cluster`. `streaming.offline` reads them.

What is written reads back as the same values: a text that YAML would take for something else (`on`,
`1e5`, `2026-01-01`) is quoted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from schemas.cluster import Cluster

# JSON's numbers with an exponent, which YAML 1.1 takes for text where they have no point. Readers
# and writers of cluster files take them for numbers.
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")

# The C writer is ten times faster; the wheels of PyYAML bring it.
_Dumper: Any = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))

# Wider than any value: a line is not broken.
_NO_WIDTH = 1_000_000


def cluster_body(cluster: Cluster) -> dict[str, Any]:
    """A cluster in the form of a cluster file; what has its default is left out."""
    resources = {
        name: each.model_dump(mode="json", exclude_defaults=True)
        for name, each in cluster.resources.items()
    }
    body = {"levels": list(cluster.levels), "resources": resources, "nodes": _bodies(cluster.nodes)}
    body |= {"streams": _bodies(cluster.streams), "moves": _bodies(cluster.moves)}
    return {name: value for name, value in body.items() if value or name in ("nodes", "streams")}


def cluster_text(body: Mapping[str, Any]) -> str:
    """The YAML of a document; lists and mappings of plain values stand on one line each."""
    text: str = yaml.dump(
        dict(body), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None
    )
    return text


def flow_text(value: Any) -> str:
    """A value in YAML on one line: `{at_most: 1, per: zone}`."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=True,
        width=_NO_WIDTH,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _bodies(models: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        each.model_dump(mode="json", exclude_defaults=True)
        for each in models
        if isinstance(each, BaseModel)
    ]
