"""The protocol of strategies, and the base of those whose rules say everything.

A strategy proposes nodes; the rules engine checks the arrangement.
"""

from typing import ClassVar, Protocol

from placement.allocator.choose import choose
from placement.allocator.view import Placement, ReplicaRequest, View
from placement.model import Reason, StreamSpec
from placement.policy import Balance, Compiles, OnInfeasible, Policy
from placement.rules import (
    Mask,
    Rule,
)
from placement.topology import Topology


class Strategy(Compiles, Protocol):
    """A placement system. `place` proposes for a whole stream, `extend` for one more replica.

    All four values of `on_infeasible` come from `placement.streams.decision`, for every strategy,
    if it keeps to this:

    - Rules that are subject to `on_infeasible` carry `policy.strength`: required, unless the mode
      is `degrade`. What is never more than a wish is `Strength.PREFERRED` in any case.
    - `place` returns a Reason, or a Placement with EMPTY slots and reasons, where it finds no
      lawful arrangement. `streams` then rejects, keeps the stream waiting, fills what `extend` can
      (`partial`), or fills the rest by the preferred rules, with the reason as a warning
      (`degrade`); what is still missing then is up to `on_shortage`.
    - A strategy that knows a better fallback takes it in `place` and `extend` while
      `policy.strength` is preferred, and says so in `warnings`.
    - `streams` judges what was placed: an arrangement that breaks a required rule of `rules()`, the
      user's or its own, counts as not found.
    """

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names, those of the systems it follows."""
        ...

    def rules(self, policy: Policy, topology: Topology, /) -> tuple[Rule, ...]:
        """List the rules of this policy: the user's, then the strategy's own."""
        ...

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place a whole stream, or say why it cannot be placed."""
        ...

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the node for one more replica out of `mask`, or say why none serves."""
        ...

    def find_fault(self, spec: StreamSpec, policy: Policy, topology: Topology, /) -> Reason | None:
        """Find a fault of the request as such, for instance an unknown name.

        The stream is then rejected, also if it brings its replicas.
        """
        ...

    def advice(self, spec: StreamSpec, policy: Policy, topology: Topology, /) -> tuple[Reason, ...]:
        """List warnings for a stream that is placed; they change nothing."""
        ...

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View, /
    ) -> tuple[Reason, ...]:
        """Fill the EMPTY slots of given shards as `place` would have continued.

        Slots that find no node stay EMPTY, with reasons. `extend` fills what is left.
        """
        ...

    @property
    def balance(self) -> Balance:
        """The order in which rebalancing evens out the strategy's streams, if it does."""
        ...

    @property
    def has_leaders(self) -> bool:
        """True if the first replica leads, so that the allocator evens out leaders."""
        ...

    @property
    def places_by_choice(self) -> bool:
        """True if `choose` decides where a shard's last replica goes.

        `explain` then names the step of `choose` that decided, instead of an order of the
        strategy's own.
        """
        ...

    @property
    def followers_on_suspect(self) -> bool:
        """True if followers may go to suspect nodes when no other node is left."""
        ...


class ByRules:
    """Base of a strategy whose rules say everything that it asks for.

    It has a default for every member that a strategy need not bring.
    """

    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.TOTALS_FIRST
    has_leaders: ClassVar[bool] = True
    places_by_choice: ClassVar[bool] = False
    followers_on_suspect: ClassVar[bool] = False

    def find_fault(
        self, _spec: StreamSpec, _policy: Policy, _topology: Topology, /
    ) -> Reason | None:
        """Find no fault: a strategy by rules accepts every request."""
        return None

    def advice(
        self, _spec: StreamSpec, _policy: Policy, _topology: Topology, /
    ) -> tuple[Reason, ...]:
        """Give no warnings."""
        return ()

    def resume(
        self, _spec: StreamSpec, _policy: Policy, _shards: list[list[int]], _view: View, /
    ) -> tuple[Reason, ...]:
        """Leave all to `extend`."""
        return ()

    def extend(
        self: Strategy, need: ReplicaRequest, policy: Policy, mask: Mask, view: View
    ) -> int | Reason:
        """Choose the best candidate by the strategy's rules, load and nearness."""
        return choose(self.rules(policy, view.topology), mask, need, view)
