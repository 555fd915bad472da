"""Strategies that users bring: enabled by path, named by streams, refused where they are none."""

from collections.abc import Iterator

import pytest

from placement.allocator import Placement, ReplicaRequest, View, choose
from placement.model import (
    Code,
    Configuration,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    Reason,
    StreamCreated,
    StreamSpec,
)
from placement.policy import Balance, OnInfeasible, Policy
from placement.reconciler import Reconciler
from placement.rules import Mask, Rule
from placement.strategies import enable, registry

EXAMPLE = "tests.placement.strategies.one_site:OneSite"


@pytest.fixture
def enabled() -> Iterator[None]:
    known = dict(registry.STRATEGIES)
    yield
    for name in registry.STRATEGIES.keys() - known.keys():
        del registry._BY_NAME[name]


def create(reconciler: Reconciler, name: str, policy: dict[str, object], factor: int) -> Outcome:
    spec = StreamCreated(0, name, 1, 2, factor, policy=policy)
    return reconciler.apply([spec], 0).decisions[name].outcome


def fleet() -> Reconciler:
    reconciler = Reconciler(Configuration(levels=("site",)))
    nodes = {"a": "/x", "b": "/x", "c": "/y", "d": "/y", "e": "/y"}
    reconciler.apply(
        [
            NodeChanged(0, name, "i", 1, Liveness.UP, attributes=NodeAttributes(location=place))
            for name, place in nodes.items()
        ],
        0,
    )
    return reconciler


def test_the_example_of_the_readme(enabled: None) -> None:
    assert enable(EXAMPLE) is None
    assert enable(EXAMPLE) is None, "again is no change"
    reconciler = fleet()
    assert create(reconciler, "s", {"strategy": "one_site"}, 3) is Outcome.PLACED
    ready = reconciler.apply([StreamCreated(0, "t", 1, 2, 3, policy={"strategy": "one_site"})], 0)
    replicas = [set(each.replicas) for each in ready.assignments.values()]
    assert replicas == [{"c", "d", "e"}] * 2
    assert create(reconciler, "u", {"strategy": "acme.one_site"}, 1) is Outcome.PLACED
    for mode, outcome in [
        (None, Outcome.REJECTED),
        ("wait", Outcome.WAITING),
        ("partial", Outcome.PARTIAL),
        ("degrade", Outcome.DEGRADED),
    ]:
        asked = {"strategy": "one_site"} | ({"on_infeasible": mode} if mode else {})
        assert create(reconciler, f"four-{mode}", asked, 4) is outcome
    wrong = {"strategy": "one_site", "limit": "many"}
    assert create(reconciler, "wrong", wrong, 1) is Outcome.REJECTED


def test_a_stream_cannot_import(enabled: None) -> None:
    assert create(fleet(), "s", {"strategy": EXAMPLE}, 1) is Outcome.REJECTED
    assert create(fleet(), "s", {"strategy": "one_site"}, 1) is Outcome.REJECTED


class NotAStrategy:
    name = "nothing"


class Thief:
    name, aliases, parameters = "mine", ("spread",), ()
    on_infeasible = on_shortage = None

    compile = rules = place = extend = None


class Plain:
    """A strategy that inherits nothing."""

    name, aliases, parameters = "plain", (), ()
    on_infeasible = on_shortage = OnInfeasible.REJECT
    balance = Balance.NEVER

    def compile(self, _policy: object, _topology: object) -> dict[str, object]:
        return {}

    def rules(self, policy: Policy, _topology: object) -> tuple[Rule, ...]:
        return policy.rules

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        return registry.STRATEGIES["spread"].place(spec, policy, view)

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        return choose(self.rules(policy, view.topology), mask, need, view)


class Misspelt(Plain):
    name = "misspelt"

    def find_fautl(self) -> None:
        """A hook that nobody would call."""


class Short(Plain):
    name = "short"

    def advice(self) -> None:
        """A hook that takes too few arguments."""


class Unbalanced(Plain):
    name, balance = "unbalanced", False


def test_a_strategy_need_not_inherit(enabled: None) -> None:
    assert enable(f"{__name__}:Plain") is None
    assert enable(f"{__name__}:Plain") is None, "again is no change"
    reconciler = fleet()
    assert create(reconciler, "s", {"strategy": "plain"}, 3) is Outcome.PLACED
    plain = registry.STRATEGIES["plain"]
    assert (plain.balance, plain.has_leaders, plain.places_by_choice) == (
        Balance.NEVER,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{__name__}:Misspelt", "has 'find_fautl': did you mean 'find_fault'?"),
        (f"{__name__}:Short", "has 'advice', which does not take 3 arguments"),
        (f"{__name__}:Unbalanced", "not one of totals_first, streams_first, never"),
        ("", "package.module:ClassName"),
        ("tests.placement.strategies.one_site", "package.module:ClassName"),
        ("..one_site:OneSite", "package.module:ClassName"),
        ("tests.nowhere:OneSite", "No module named"),
        ("tests.placement.strategies.one_site:Nothing", "has no class Nothing"),
        ("tests.placement.strategies.one_site:SITE", "has no class SITE"),
        (f"{__name__}:NotAStrategy", "has no aliases, parameters"),
        (f"{__name__}:Thief", "'spread' of Thief is known already"),
    ],
)
def test_what_is_not_a_strategy_is_refused(enabled: None, path: str, said: str) -> None:
    wrong = enable(path)
    assert isinstance(wrong, Reason)
    assert wrong.code is Code.STRATEGY_UNKNOWN
    assert said in wrong.message
    assert "mine" not in registry.STRATEGIES
