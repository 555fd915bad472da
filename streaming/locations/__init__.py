"""Asks authorities outside the core where a host stands: files, commands, cloud labels.

Answers become events of the stream. Imports `errors` only.
"""

from streaming.locations.locator import FromCloud, FromCommand, FromFile, Locator
from streaming.locations.sources import LocationMap, cloud_location, read_locations, read_rackdc

__all__ = [
    "FromCloud",
    "FromCommand",
    "FromFile",
    "LocationMap",
    "Locator",
    "cloud_location",
    "read_locations",
    "read_rackdc",
]
