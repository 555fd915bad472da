"""Asks authorities outside the core where a host stands: files, commands, cloud labels.

Answers become events of the stream. Imports `errors` only.
"""

from streaming.locations.locator import CloudLocator, CommandLocator, FileLocator, Locator
from streaming.locations.sources import LocationMap, cloud_location, read_locations, read_rackdc

__all__ = [
    "CloudLocator",
    "CommandLocator",
    "FileLocator",
    "LocationMap",
    "Locator",
    "cloud_location",
    "read_locations",
    "read_rackdc",
]
