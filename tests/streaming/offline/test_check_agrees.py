"""Goal: the stream and `placer check` say the same of the same arrangement.

Method: a reconciler is driven by a table of faults and by simulated histories; after every step its
violations are compared with those of `check` for the cluster file of what it has published: rule,
class, reason code, words, counts, level and domain. `explained` names the cases in which the stream
knows more than a cluster file says, as `placement.repair.violations` lists them.
"""

from collections import defaultdict

import pytest

from placement.assignments import EMPTY
from placement.diagnosis import LEADER_RULE, REPLICAS_RULE, WAITS_FOR_NODES, Health
from placement.model import Band, Code, Ready, ViolationClass
from streaming.offline import CheckOptions, Document, check_cluster
from tests.builders.screens import World
from tests.simulation.history import History, tell

DEFERRED, FIXABLE = ViolationClass.DEFERRED, ViolationClass.FIXABLE


def identity(violation):
    return violation.stream, violation.shard, violation.rule, violation.strength, violation.domain


def words(violation):
    """All that both have to say alike."""
    v, why = violation, violation.reason
    counts = v.count, v.limit, why.need, why.have
    return v.violation_class, why.code, why.message, counts, v.level, why.level, why.seen


def shards_of(state):
    return (((s.spec.stream, n), i) for s in state.streams.values() for n, i in enumerate(s.shards))


def conditions(topology):
    """What each node is to the rules."""
    columns = topology.eligible, topology.counts_for_rules, topology.fenced, topology.dead
    return {name: tuple(column[i] for column in columns) for name, i in topology.index.items()}


def by_identity(violations):
    found = defaultdict(list)
    for violation in violations:
        found[identity(violation)].append(violation)
    return found


class Comparison:
    """What the stream says of its shards (`said`) and what `check` says of them (`told`)."""

    def __init__(self, world, batch=None):
        """`batch`: compare what it has published; otherwise all shards, judged anew."""
        live, core = world.live, world.reconciler
        topology = core.state.topology
        self.placed = {each.stream for each in live.assignments}
        nodes = {each: core.state.table.nodes(s) for each, s in shards_of(core.state)}
        self.gaps = {each for each, row in nodes.items() if EMPTY in row}
        self.moving = {(move.stream, move.shard) for move in live.open_moves}
        self.dead_only = {d.stream for d in live.decisions if d.spec.repair == "dead_only"}
        # Shards that count a replica on a dead node as there.
        kept = {n for n, i in topology.index.items() if topology.is_dead(i)}
        kept -= {n for n, i in topology.index.items() if topology.is_lost(i)}
        self.keeping = {(a.stream, a.shard) for a in live.assignments if kept & {*a.replicas}}
        self.keeping_streams = {stream for stream, _ in self.keeping}
        published = [] if batch is None else [*batch.violations]
        said = core.violations() if batch is None else sum(batch.violations.values(), ())
        self.said = by_identity(said)
        checked = check_cluster(Document(live.cluster()), CheckOptions())
        found = checked.diagnosis.violations
        # A node that is, say, suspect and cordoned has one of the two words in a cluster file.
        self.comparable = conditions(topology) == conditions(checked.topology)
        told = found if batch is None else [v for v in found if (v.stream, v.shard) in published]
        self.told = by_identity(told)
        self.wide = {(v.stream, v.rule) for v in found if v.shard is None}

    def differences(self):
        """What differs and is not explained."""
        if not self.comparable:
            return
        for key in sorted({*self.said, *self.told}, key=str):
            said, told = self.said.get(key, []), self.told.get(key, [])
            if [*map(words, said)] != [*map(words, told)] and not self.explained(key, said, told):
                yield key, [*map(words, said)], [*map(words, told)]

    def explained(self, key, said, told):
        """Whether the stream knows more than the cluster file."""
        stream, shard, rule, _, _ = key
        if rule.startswith("role ") and (stream, shard) in self.gaps | self.moving:
            # A file's list closes the gap of a replica to come, so that others get its role.
            return True
        if shard is None:
            # Of a rule on the whole stream it speaks shard by shard; of a node's capacity not.
            return True
        if stream not in self.placed:
            # A stream that waits has no shards: its decision says what is missing.
            return not said
        if not told:
            return (stream, rule) in self.wide or self.keeps(said[0])
        if not said:
            return (stream, shard) in self.keeping or stream in self.keeping_streams
        (mine,), (other,) = said, told
        if rule == REPLICAS_RULE and (stream, shard) in self.moving:
            return mine.violation_class is FIXABLE
        if self.keeps(mine) or mine.reason.code in WAITS_FOR_NODES:
            return True
        return mine.violation_class is DEFERRED and self.waits(mine, other)

    def waits(self, mine, other):
        """Whether the stream says why a violation that `check` calls fixable has no move."""
        if mine.reason.band is Band.THROTTLED or other.violation_class is not FIXABLE:
            return mine.reason.band is Band.THROTTLED
        idle = mine.rule == LEADER_RULE or mine.stream in self.dead_only
        same = words(mine)[1:] == words(other)[1:]
        return mine.reason.code is Code.NO_CANDIDATE or (same and idle)

    def keeps(self, violation):
        """Whether the shard, or a rule's other shards, hold replicas that are meant to stay."""
        wide = (violation.stream, violation.rule) in self.wide
        return violation.key in self.keeping or (wide and violation.stream in self.keeping_streams)


class Batches(World):
    """A world that knows what its last batch has published."""

    last = Ready()

    def commit(self, events, caught_up=True):
        self.last = super().commit(events, caught_up)
        return self.last


class Compared(History):
    """A simulated history that is compared after every step."""

    def __init__(self, seed):
        super().__init__(seed)
        self.story = World()
        self.compared = 0

    def _tell(self, block):
        super()._tell(block)
        comparison = Comparison(self.story)
        assert [*comparison.differences()] == [], self.blocks
        self.compared += comparison.comparable and bool(comparison.said)


@pytest.mark.parametrize("seed", range(4))
def test_simulated_histories(seed):
    history = Compared(seed)
    history.play()
    assert history.compared


FLEET = """topology
/a/r1 n1 n2 disk=ssd
/a/r2 n3 disk=ssd
/b/r1 n4 disk=hdd
/b/r2 n5 disk=hdd
/c/r1 n6 disk=ssd leader=false"""
POLICIES = {
    "spread": "{strategy: spread}",
    "at most": "{strategy: spread, rules: [{at_most: 1, per: site}]}",
    "even": "{strategy: spread, rules: [{even: site}]}",
    "preferred": "{strategy: spread, rules: [{at_most: 1, per: site, strength: preferred}]}",
    "tags": "{strategy: spread, with_tags: {disk: ssd}}",
    "majority": "{strategy: location_majority}",
    "levels": "{strategy: multi_level}",
    "roles": "{strategy: spread, rules: [{role: cold, count: 1, other: site}]}",
    "exclusive": "{strategy: spread, rules: [{exclusive: nodes}]}",
    "colocated": "{strategy: spread, rules: [{colocate: slots}]}",
    "leaders": "{strategy: spread, rules: [{leader_in: [/b]}]}",
}
FAULTS = {
    "none": (),
    "dead": ("dead nodes=n4",),
    "two dead": ("dead nodes=n4", "dead nodes=n1"),
    "domain gone": ("unregister nodes=n4,n5", "unregister nodes=n6"),
    "draining": ("drain nodes=n4",),
    "all drain": ("drain nodes=/b", "drain nodes=n6"),
    "suspect": ("suspect nodes=n4,n5",),
    "moved": ("relocate node=n4 location=/a/r1",),
    "other tags": ("register nodes=n1 location=/a/r1 disk=hdd",),
    "follower leads": ("register nodes=n1,n3 location=/a/r1 disk=ssd leader=false",),
    "fewer asked for": ("alter stream=s shards=2 rf=1 policy='{policy}'",),
    "more asked for": ("alter stream=s shards=2 rf=5 policy='{policy}'",),
}


GIVEN = ("", " replicas='n1 n2 n3,n4 n1 n2'", " replicas='n6 n5 n4 n3,n1 n2 n3'")
LIMITS = ("", " max_open=1 max_per_batch=1")


@pytest.mark.parametrize("name", POLICIES)
def test_faults(name):
    """Every fault, before its moves and after them, as the batch publishes it and judged anew."""
    policy, seen = POLICIES[name], 0
    for number, (fault, lines) in enumerate(FAULTS.items()):
        world = Batches()
        settings = f"settings levels=site,rack hold_window=0{LIMITS[number % 2]}"
        create = f"create stream=s shards=2 rf=3 policy='{policy}'{GIVEN[number % 3]}"
        altered = (line.format(policy=policy) if "{" in line else line for line in lines)
        for block in (settings, FLEET, create, *altered, "ack kind=completed moves=all"):
            tell(world, block)
            for batch in (None, world.last):
                compared = Comparison(world, batch)
                assert [*compared.differences()] == [], (fault, block)
                seen += len(compared.said)
    assert seen


def test_replicas_out_of_sync_count_for_no_quorum_and_break_no_rule():
    """As observed by executors, published, and read back by `status`."""
    world = World()
    create = "create stream=s shards=3 rf=3 quorum=2 replicas='n1 n2 n3, n1 n2 n3, n1 n2 n3'"
    observed = (
        "observe shard=s/1 replicas=n1,n2,n3 in_sync=n2,n1",
        "observe shard=s/2 replicas=n1,n2,n3 in_sync=n3",
    )
    for block in ("topology\n/r1 n1\n/r2 n2\n/r3 n3", create, *observed):
        tell(world, block)
    found = check_cluster(Document(world.live.cluster()), CheckOptions()).diagnosis
    assert found.shards["s"] == (Health.HEALTHY, Health.UNDER_REPLICATED, Health.UNAVAILABLE)
    assert found.violations == ()
    tell(world, "observe shard=s/2 replicas=n1,n2,n3 in_sync=n1,n2,n3")
    found = check_cluster(Document(world.live.cluster()), CheckOptions()).diagnosis
    assert found.shards["s"][2] is Health.HEALTHY
