"""Serves the published state over HTTP under `/api/v1`, and takes operators' requests.

Imports `read_model`, `requests`, `live` and what they stand on; only the command line imports it.
"""

from streaming.api.access import AccessRules, parse_network, read_tokens
from streaming.api.application import make_application
from streaming.api.events import EventHub
from streaming.api.guard import GuardRules
from streaming.api.request_routes import KafkaOperating
from streaming.api.server import ApiServer, ProcessList, ServerOptions
from streaming.api.service import STALE_SECONDS_MAX, Service

__all__ = [
    "STALE_SECONDS_MAX",
    "AccessRules",
    "ApiServer",
    "EventHub",
    "GuardRules",
    "KafkaOperating",
    "ProcessList",
    "ServerOptions",
    "Service",
    "make_application",
    "parse_network",
    "read_tokens",
]
