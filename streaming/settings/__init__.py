"""Holds everything that can be set, and reads it from flags, environment and YAML.

`client_options` gives one set of Kafka options in the names of three clients;
`core_configuration` makes the core's configuration. Imports no Kafka client, no Spark.
"""

from streaming.settings.client_options import PATIENCE, encrypted, for_administration, for_spark
from streaming.settings.core_configuration import configuration
from streaming.settings.loader import load_settings
from streaming.settings.settings import ENV_DELIMITER, ENV_PREFIX, Settings
from streaming.settings.types import SECRET_KEY

__all__ = [
    "ENV_DELIMITER",
    "ENV_PREFIX",
    "PATIENCE",
    "SECRET_KEY",
    "Settings",
    "configuration",
    "encrypted",
    "for_administration",
    "for_spark",
    "load_settings",
]
