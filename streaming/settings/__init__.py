"""Holds everything that can be set, and reads it from flags, environment and YAML.

`client_options` gives one set of Kafka options in the names of three clients;
`core_configuration` makes the core's configuration. Imports no Kafka client, no Spark.
"""

from streaming.settings.client_options import (
    TIMEOUT_OPTIONS,
    admin_client_options,
    is_encrypted,
    spark_client_options,
)
from streaming.settings.loader import load_settings
from streaming.settings.settings import (
    ENV_DELIMITER,
    ENV_PREFIX,
    Settings,
    core_configuration,
    name_instance,
)
from streaming.settings.types import LOOPBACK, SECRET_KEY, URI

__all__ = [
    "ENV_DELIMITER",
    "ENV_PREFIX",
    "LOOPBACK",
    "SECRET_KEY",
    "TIMEOUT_OPTIONS",
    "URI",
    "Settings",
    "admin_client_options",
    "core_configuration",
    "is_encrypted",
    "load_settings",
    "name_instance",
    "spark_client_options",
]
