"""Reads locations of hosts from mapping files and cloud labels.

Pure reading; what comes out becomes a journaled event. The forms are those of Cassandra's snitches
and of Kubernetes' labels, so that what a fleet already has can be used.
"""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from placement.model import Location, Reason, natural_key, parse_location
from streaming.errors import StreamingError

# Well-known labels of Kubernetes, and what they were called before 1.17.
REGION_LABELS = (
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
    "region",
)
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "zone")

# `dc` and `rack` of a node, as Cassandra's GossipingPropertyFileSnitch reads them.
_RACKDC = ("dc", "rack")


class LocationsUnreadable(StreamingError):
    """A mapping file cannot be used; says which line or entry is wrong."""


class LocationMap:
    """Places by node id, host name, address or network, most exact first, and for all others."""

    def __init__(self, places: Mapping[str, str], default: str | None = None) -> None:
        self._default = default
        self._places: dict[str, str] = {}
        self._networks: list[tuple[Any, str]] = []
        for name, place in places.items():
            if "/" in name:
                self._networks.append((ipaddress.ip_network(name, strict=False), place))
            else:
                self._places[name.lower()] = place
        self._networks.sort(key=lambda each: (-each[0].prefixlen, natural_key(str(each[0]))))

    def locate(self, node_id: str, host: str | None) -> str | None:
        """Where a node stands, by its id, else by its host (a port is left out)."""
        name = _strip_port(host or "").lower()
        found = self._places.get(node_id.lower()) or self._places.get(name)
        if found is not None:
            return found
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self._default
        inside = (place for network, place in self._networks if address in network)
        return next(inside, self._default)


def read_locations(path: Path) -> LocationMap:
    """Read a mapping file: YAML, or Cassandra's `cassandra-topology.properties`.

    YAML has `nodes` (by id), `hosts` (names, addresses, networks such as 10.1.0.0/16) and a
    `default`, each a path `/dc/rack`. Raises LocationsUnreadable.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LocationsUnreadable(f"{path}: {error}") from None
    if path.suffix == ".properties":
        pairs = _properties(text, path)
        places = {name: _dc_and_rack(value, f"{path}: {name}") for name, value in pairs.items()}
        default = places.pop("default", None)
        return _check_location(path, places, default)
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise LocationsUnreadable(f"{path}: {error}") from None
    if not isinstance(document, dict) or not {*document} <= {"nodes", "hosts", "default"}:
        raise LocationsUnreadable(f"{path}: expected the keys nodes, hosts and default")
    parts = (document.get("hosts") or {}, document.get("nodes") or {})
    if not all(isinstance(part, dict) for part in parts):
        raise LocationsUnreadable(f"{path}: nodes and hosts map names to locations")
    places = {str(name): str(place) for part in parts for name, place in part.items()}
    default = document.get("default")
    return _check_location(path, places, None if default is None else str(default))


def read_rackdc(path: Path) -> str:
    """The location of the node whose `cassandra-rackdc.properties` this is: `/dc/rack`, with
    `dc_suffix` behind the first. Raises LocationsUnreadable."""
    try:
        pairs = _properties(path.read_text("utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise LocationsUnreadable(f"{path}: {error}") from None
    missing = [name for name in _RACKDC if not pairs.get(name)]
    if missing:
        raise LocationsUnreadable(f"{path}: {' and '.join(missing)} must be given")
    place = f"/{pairs['dc']}{pairs.get('dc_suffix', '')}/{pairs['rack']}"
    return _path(place, str(path))


def cloud_location(tags: Mapping[str, str], form: str) -> str | None:
    """Where a node stands by its region and zone labels; None where they do not say.

    `kubernetes`: /region/zone as they are. `ec2`: the standard naming of Ec2Snitch, as in
    /us-east-1/us-east-1a; `ec2_legacy`: its older one, /us-east/1a, /us-west-2/2a; `gce`: that of
    GoogleCloudSnitch, /us-central1/a.
    """
    zone = next((tags[name] for name in ZONE_LABELS if tags.get(name)), None)
    region = next((tags[name] for name in REGION_LABELS if tags.get(name)), None)
    if zone is None:
        return None
    match form:
        case "ec2":
            parts = region or zone.rstrip("abcdefghijklmnopqrstuvwxyz"), zone
        case "ec2_legacy":
            whole = zone[:-1]
            parts = (whole.removesuffix("-1")), zone.rpartition("-")[2]
        case "gce":
            parts = zone.rpartition("-")[0], zone.rpartition("-")[2]
        case _:
            parts = region or "", zone
    place = parse_location("/" + "/".join(parts))
    return str(place) if isinstance(place, Location) else None


def _properties(text: str, path: Path) -> dict[str, str]:
    """Parse Java properties as location files use them. A line is `name=value` or `name:value`, `#`
    and `!` begin comments, and a backslash escapes the next character of a name."""
    pairs: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line[0] in "#!":
            continue
        found = re.fullmatch(r"((?:\\.|[^\\=:])+?)\s*[=:]\s*(.*)", line)
        if found is None:
            raise LocationsUnreadable(f"{path}, line {number}: expected name=value")
        pairs[re.sub(r"\\(.)", r"\1", found[1])] = re.sub(r"\\(.)", r"\1", found[2]).strip()
    return pairs


def _dc_and_rack(value: str, where: str) -> str:
    dc, found, rack = value.partition(":")
    if not found:
        raise LocationsUnreadable(f"{where}: expected DC:RACK, got {value!r}")
    return _path(f"/{dc.strip()}/{rack.strip()}", where)


def _check_location(path: Path, places: Mapping[str, str], default: str | None) -> LocationMap:
    for name, place in [*places.items(), ("default", default or "")]:
        _path(place, f"{path}: {name}")
    try:
        return LocationMap(places, default)
    except ValueError as error:
        raise LocationsUnreadable(f"{path}: {error}") from None


def _path(place: str, where: str) -> str:
    found = parse_location(place)
    if isinstance(found, Reason):
        raise LocationsUnreadable(f"{where}: {found.message}")
    return str(found)


def _strip_port(host: str) -> str:
    """`[fe80::1]:9092` and `n1.example:9092` without the port; IPv6 has none without []."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host
