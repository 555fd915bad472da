"""Goal: `placer send` writes what the reconciler reads, `placer watch` shows what is committed.

Method: commands run in this process, their records read back from the embedded broker.
"""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from typer.testing import Result

from schemas.envelope import Envelope, decode, validate
from streaming.brokers import CommittedReader, make_producer


class TestSend:
    @pytest.mark.parametrize(
        ("command", "topic", "message", "key", "fields"),
        [
            (
                (
                    "node n1 --location /z1/r1 --host h:1 --tag a=b --tag c=d=e --weight 2"
                    " --capacity 7 --no-leader --incarnation i1 --sequence 5"
                ),
                "nodes.v1",
                "NodeRegistered",
                "n1",
                {
                    "incarnation": "i1",
                    "sequence": 5,
                    "location": "/z1/r1",
                    "host": "h:1",
                    "tags": {"a": "b", "c": "d=e"},
                    "weight": 2.0,
                    "capacity": 7,
                    "leader": False,
                },
            ),
            ("heartbeat n1", "nodes.v1", "NodeHeartbeat", "n1", {"incarnation": "manual"}),
            ("heartbeat n1 --stopping", "nodes.v1", "NodeHeartbeat", "n1", {"stopping": True}),
            (
                "node n1 --incarnation i2 --replaces i1",
                "nodes.v1",
                "NodeRegistered",
                "n1",
                {"incarnation": "i2", "replaces": "i1"},
            ),
            (
                "locality n1 --location /z2/r1",
                "nodes.v1",
                "NodeLocalityChanged",
                "n1",
                {"location": "/z2/r1", "tags": None},
            ),
            ("unregister n1", "nodes.v1", "NodeUnregistered", "n1", {}),
            (
                "report n1 down",
                "detector.v1",
                "NodeLivenessReported",
                "n1",
                {"status": "down"},
            ),
            (
                "stream orders --shards 2 --rf 5 --policies node=exclusive",
                "streams.v1",
                "StreamCreated",
                "orders",
                {"shards": 2, "replication_factor": 5, "placement_policies": "node=exclusive"},
            ),
            (
                "stream orders --policy {strategy:\u00a0spread,\u00a0within:\u00a0[/az1]}",
                "streams.v1",
                "StreamCreated",
                "orders",
                {"policy": {"strategy": "spread", "within": ["/az1"]}, "shards": 1},
            ),
            (
                "stream orders --rf 0",
                "streams.v1",
                "StreamCreated",
                "orders",
                {"replication_factor": 0},
            ),
            (
                "ack accepted --move m1 --shard orders/07 --node n3 --reason disk",
                "acks.v1",
                "MoveAccepted",
                "orders/7",
                {"move_id": "m1", "shard": 7, "node_id": "n3", "reason": "disk"},
            ),
            ("stream orders --drop", "streams.v1", "StreamDropped", "orders", {}),
            (
                "ack lost --shard orders/0 --node n3 --reason disk",
                "acks.v1",
                "ReplicaLost",
                "orders/0",
                {"node_id": "n3", "reason": "disk", "move_id": None},
            ),
            (
                "observation orders/07 --epoch 3 --replicas n1,n2 --leader n1 --in-sync n1",
                "acks.v1",
                "ReplicasObserved",
                "orders/7",
                {"epoch": 3, "replicas": ("n1", "n2"), "leader": "n1", "in_sync": ("n1",)},
            ),
            (
                "observation orders/0 --epoch 0 --replicas n1,n2 --following n2,n3 --following n3",
                "acks.v1",
                "ReplicasObserved",
                "orders/0",
                {"replicas": ("n1", "n2"), "following": (("n2", "n3"), ("n3",))},
            ),
            (
                "stream orders --shards 3 --rf 2 --adopt",
                "streams.v1",
                "StreamCreated",
                "orders",
                {"shards": 3, "adopt": "observed"},
            ),
            (
                "ack progressed --move m1 --shard orders/0 --bytes-done 3 --bytes-total 9",
                "acks.v1",
                "MoveProgressed",
                "orders/0",
                {"move_id": "m1", "bytes_done": 3, "bytes_total": 9},
            ),
            (
                "ack completed --move m1 --shard orders/0",
                "acks.v1",
                "MoveCompleted",
                "orders/0",
                {"move_id": "m1", "stream": "orders"},
            ),
        ],
    )
    def test_what_is_sent_is_what_the_reconciler_reads(
        self,
        placer: Callable[..., Result],
        bootstrap: str,
        prefix: str,
        command: str,
        topic: str,
        message: str,
        key: str,
        fields: dict[str, Any],
    ) -> None:
        # A space within an argument is written as a no-break space in the table.
        words = [word.replace("\u00a0", " ") for word in command.split(" ")]
        result = placer("send", *words, at=(bootstrap, prefix))
        assert result.exit_code == 0, result.output
        with CommittedReader(bootstrap, prefix, [topic]) as reader:
            [record] = reader.read_to_end()
        assert result.stdout == f"{prefix}{topic}-{record.partition}@{record.offset}\n"
        envelope = decode(record.raw, [(n, t.encode()) for n, t in record.headers.items()])
        assert isinstance(envelope, Envelope)
        read = validate(envelope, (record.key or "").encode(), topic)
        assert (type(read).__name__, record.key) == (message, key)
        assert {name: getattr(read, name) for name in fields} == fields

    @pytest.mark.parametrize(
        ("command", "fields"),
        [
            ("--rf 5", {"shards": 2, "replication_factor": 5, "placement_policies": "node=x"}),
            ("--shards 4 --sequence 7", {"shards": 4, "sequence": 7, "quorum": "one"}),
            (
                "--policy {strategy:\u00a0simple}",
                {"policy": {"strategy": "simple"}, "placement_policies": None},
            ),
        ],
    )
    def test_an_alteration_keeps_what_is_not_given(
        self,
        placer: Callable[..., Result],
        bootstrap: str,
        prefix: str,
        command: str,
        fields: dict[str, Any],
    ) -> None:
        spec = {
            "stream": "orders",
            "shards": 2,
            "replication_factor": 3,
            "policy": {"strategy": "affinity"},
            "placement_policies": "node=x",
            "quorum": "one",
        }
        later = 10**15
        decided = {
            "stream": "orders",
            "outcome": "placed",
            "sequence": later,
            "spec": spec,
            "revision": 1,
            "body_hash": "00",
            "strategy": "affinity",
            "decided_at": 1,
            "shards_placed": 2,
            "replicas_missing": 0,
            "reasons": [],
            "warnings": [],
        }
        producer = make_producer(bootstrap)
        for name, outcome in (("orders", "placed"), ("gone", "dropped")):
            body = orjson.dumps(decided | {"stream": name, "outcome": outcome})
            producer.produce(f"{prefix}decisions.v1", body, name)
        assert producer.flush(10) == 0
        words = [word.replace("\u00a0", " ") for word in command.split(" ")]
        result = placer("send", "stream", "orders", "--alter", *words, at=(bootstrap, prefix))
        assert result.exit_code == 0, result.output
        with CommittedReader(bootstrap, prefix, ["streams.v1"]) as reader:
            [record] = reader.read_to_end()
        envelope = decode(record.raw, [(n, t.encode()) for n, t in record.headers.items()])
        assert isinstance(envelope, Envelope)
        read = validate(envelope, b"orders", "streams.v1")
        assert type(read).__name__ == "StreamAltered"
        expected = {"sequence": later + 1} | fields
        assert {name: getattr(read, name) for name in expected} == expected
        for name in ("gone", "unheard"):
            result = placer("send", "stream", name, "--alter", "--rf", "2", at=(bootstrap, prefix))
            assert result.exit_code == 2
            assert "no stream" in result.output

    def test_sequences_rise_by_themselves(
        self, placer: Callable[..., Result], bootstrap: str, prefix: str
    ) -> None:
        for _ in range(3):
            assert placer("send", "heartbeat", "n1", at=(bootstrap, prefix)).exit_code == 0
        with CommittedReader(bootstrap, prefix, ["nodes.v1"]) as reader:
            sequences = [
                record.value["sequence"] for record in reader.read_to_end() if record.value
            ]
        assert sequences == sorted(set(sequences))
        assert len(sequences) == 3


class TestWatch:
    @pytest.fixture
    def filled(self, bootstrap: str, prefix: str) -> str:
        """Records on three topics, one of them a tombstone."""
        producer = make_producer(bootstrap)
        move = {"state": "issued", "stream": "orders", "shard": 1, "remove": "n3", "add": "n7"}
        producer.produce(f"{prefix}moves.v1", orjson.dumps(move), "m1", headers=[("ce_id", b"x")])
        producer.produce(f"{prefix}violations.v1", None, "orders/1")
        producer.produce(f"{prefix}streams.v1", b"no json", "orders")
        assert producer.flush(10) == 0
        return bootstrap

    def test_json_has_one_record_a_line(
        self, placer: Callable[..., Result], filled: str, prefix: str
    ) -> None:
        result = placer(
            *("watch", "--from", "beginning", "--output", "json", "--count", "2"),
            at=(filled, prefix),
        )
        assert result.exit_code == 0
        records = {r["topic"]: r for r in map(orjson.loads, result.stdout.splitlines())}
        assert set(records) == {"moves.v1", "violations.v1"}
        move = records["moves.v1"]
        assert set(move) == {
            *("topic", "partition", "offset", "timestamp_ms", "key", "headers", "value")
        }
        assert (move["partition"], move["offset"], move["key"]) == (0, 0, "m1")
        assert (move["value"]["add"], move["headers"]) == ("n7", {"ce_id": "x"})
        assert records["violations.v1"]["value"] is None

    def test_what_is_no_json_is_shown_in_base64(
        self, placer: Callable[..., Result], filled: str, prefix: str
    ) -> None:
        result = placer(
            *("watch", "--topic", "streams", "--from", "beginning", "--count", "1"),
            *("--output", "json"),
            at=(filled, prefix),
        )
        assert orjson.loads(result.stdout)["raw_base64"] == "bm8ganNvbg=="

    def test_text_has_one_line_a_record_without_colours_in_a_pipe(
        self, placer: Callable[..., Result], filled: str, prefix: str
    ) -> None:
        result = placer(
            *("watch", "--topic", "moves,violations,streams", "--from", "beginning"),
            *("--count", "3"),
            at=(filled, prefix),
        )
        lines = sorted(line.partition(" ")[2] for line in result.stdout.splitlines())
        assert lines == [
            "move m1 issued orders/1 n3 -> n7",
            "streams orders 7 bytes that are not a JSON object",
            "violation orders/1 healed",
        ]

    def test_it_ends_after_the_time_given(
        self, placer: Callable[..., Result], filled: str, prefix: str
    ) -> None:
        result = placer("watch", "--for-seconds", "0.3", at=(filled, prefix))
        assert (result.exit_code, result.stdout) == (0, ""), "what was there before is not shown"
