"""A service of the HTTP interface on a model that is filled without Kafka."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from placement.model import StreamCreated
from schemas.requests import OperatorRequest
from streaming.api import AccessRules, EventHub, GuardRules, Service, make_application
from streaming.api.access import Role
from streaming.api.service import Limits
from streaming.presence import ProcessSeen
from streaming.read_model import ReadModel
from streaming.read_model.fold import Fold
from tests.builders.published_state import CELL, Committer, as_read, nodes_up

NOW_MS = 5_000
IMPACT = {"impact_hash": "abc1", "destructive": True, "shards": 3, "refusal": None}
TOKEN = "a token of the operator alice"
READER = "a token of the reader bob, too"


class FakeOperating:
    """Notes what is asked for, and answers as it is told."""

    def __init__(self) -> None:
        self.previewed: list[OperatorRequest] = []
        self.sent: list[OperatorRequest] = []
        self.outcome = "accepted"
        self.failure: Exception | None = None

    def dry_run(self, request: OperatorRequest) -> Mapping[str, Any]:
        self.previewed.append(request)
        return IMPACT

    def send(self, request: OperatorRequest, timeout_seconds: float) -> Mapping[str, Any]:
        assert timeout_seconds > 0
        self.sent.append(request)
        if self.failure is not None:
            raise self.failure
        return {
            "request_id": request.request_id,
            "action": str(request.action),
            "target": request.target,
            "outcome": self.outcome,
            "severity": "info",
            "at": NOW_MS,
            "reason": {"code": "IMPACT_CHANGED", "message": "look again", "band": "config"},
        }


class ServedModel:
    """Four nodes, the streams `orders` (3 shards) and `logs` (2), and the application on them."""

    def __init__(self, *, operate: bool = False, limits: Limits | None = None) -> None:
        self.seconds = 50.0
        self.model = ReadModel(CELL, "placement.", clock=lambda: self.seconds)
        self.model.begin(Fold(), self.seconds)
        self.committer = Committer()
        self.operating = FakeOperating()
        self.hub = EventHub(self.model)
        self.service = Service(
            self.model,
            self.hub,
            operating=self.operating if operate else None,
            processes=lambda: [
                ProcessSeen("host-1", "active", 0.2),
                ProcessSeen("b", "standby", 1),
            ],
            limits=limits or Limits(),
        )

    def fill(self) -> "ServedModel":
        """Commit the fleet and its streams."""
        self.commit(*nodes_up(4))
        self.commit(
            StreamCreated(2, "orders", 1, 3, 2, body_hash="0a"),
            StreamCreated(2, "logs", 1, 2, 3, body_hash="0b"),
        )
        return self

    def commit(self, *events: Any) -> None:
        """Commit a batch."""
        now = 1_000 + self.committer.sequence
        self.model.commit(as_read(self.committer.apply(events, now)))

    def application(self, rules: GuardRules | None = None) -> Any:
        """The ASGI application."""
        return make_application(self.service, rules or GuardRules(), lambda: NOW_MS)

    @contextmanager
    def client(self, rules: GuardRules | None = None) -> Iterator[TestClient]:
        """A client of it on this machine."""
        with TestClient(self.application(rules), base_url="http://localhost:8750") as client:
            yield client


def token_rules(**more: Any) -> GuardRules:
    """Rules by which alice may operate and bob read."""
    from streaming.api.access import _digest

    return GuardRules(
        AccessRules(
            tokens=[(_digest(TOKEN), "alice"), (_digest(READER), "bob")],
            roles={"alice": Role.OPERATE, "bob": Role.READ, "carol": Role.OPERATE},
            **more,
        )
    )


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}
