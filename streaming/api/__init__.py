"""Serves the published state over HTTP under `/api/v1`, and takes operators' requests.

Imports `read_model`, `requests`, `live` and what they stand on; only the command line imports it.
"""

from streaming.api.access import AccessRules, Principal, Role, parse_network, read_tokens
from streaming.api.application import make_application
from streaming.api.asking import check_operator, make_request, preview_request, send_request
from streaming.api.errors import ApiError, ErrorCode
from streaming.api.events import EventHub
from streaming.api.guard import GuardRules, PageRules
from streaming.api.rate_limits import OpenLimit, RateLimit
from streaming.api.request_routes import KafkaOperating
from streaming.api.server import ApiServer, ProcessList, ServerOptions
from streaming.api.service import STALE_SECONDS_MAX, Service

__all__ = [
    "STALE_SECONDS_MAX",
    "AccessRules",
    "ApiError",
    "ApiServer",
    "ErrorCode",
    "EventHub",
    "GuardRules",
    "KafkaOperating",
    "OpenLimit",
    "PageRules",
    "Principal",
    "ProcessList",
    "RateLimit",
    "Role",
    "ServerOptions",
    "Service",
    "check_operator",
    "make_application",
    "make_request",
    "parse_network",
    "preview_request",
    "read_tokens",
    "send_request",
]
