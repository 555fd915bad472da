"""`placer send …`: single input records as they are, checked as the reconciler will check them.

It waits for no answer; `placer stream`, `apply` and `node` do.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.commands.stream import parse_mapping
from streaming.cli.options import connection_options, with_options

if TYPE_CHECKING:
    from streaming.settings import Settings

app = typer.Typer(
    name="send",
    help="Send one input record as it is: a node, a stream, an acknowledgement. It waits for no "
    "answer: placer stream, apply and node do.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer send node n1 --location /z1/r1 --tag disk=ssd\n\n"
    "  placer send heartbeat n1\n\n"
    "  placer send stream orders --shards 2 --rf 3 --policies 'node=exclusive'\n\n"
    "  placer send stream orders --alter --rf 5\n\n"
    "  placer send stream orders --drop\n\n"
    "  placer send ack completed --move 1f0c… --shard orders/0\n\n"
    "  placer send ack lost --shard orders/0 --node n1\n\n"
    "Each prints where its record went: TOPIC-PARTITION@OFFSET.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Node = Annotated[str, typer.Argument(metavar="ID", help="The node's id.")]
Incarnation = Annotated[
    str,
    typer.Option(
        "--incarnation", help="Incarnation of the node's process; a restart begins another."
    ),
]
Uid = Annotated[
    str | None,
    typer.Option("--uid", help="The stream's uid, which no other stream of its name has."),
]
Sequence = Annotated[
    int | None,
    typer.Option(
        "--sequence",
        min=0,
        help="Rises with every record of the node or stream. [dim]default: the time in ms[/dim]",
        show_default=False,
    ),
]
LocationOption = Annotated[
    str | None,
    typer.Option("--location", metavar="/A/B", help="Where it stands, top tier first: /az1/rack7."),
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; repeatable.")
]


@app.command()
@with_options(settings=connection_options)
def node(
    settings: "Settings",
    node_id: Node,
    location: LocationOption = None,
    rackdc: Annotated[
        Path | None,
        typer.Option(
            "--rackdc",
            metavar="FILE",
            help="Its cassandra-rackdc.properties, for the location /dc/rack.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="For people.")] = None,
    tag: TagOption = None,
    weight: Annotated[
        float | None, typer.Option("--weight", help="Its share of load relative to others.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option("--capacity", help="The most replicas it may hold.")
    ] = None,
    no_leader: Annotated[
        bool, typer.Option("--no-leader", help="It may hold copies but never lead.")
    ] = False,
    external: Annotated[
        bool, typer.Option("--external", help="Only the reports of a detector decide its liveness.")
    ] = False,
    incarnation: Incarnation = "manual",
    replaces: Annotated[
        str | None,
        typer.Option(
            "--replaces",
            metavar="INCARNATION",
            help="Incarnation to take over from at once; its process must have ended.",
        ),
    ] = None,
    sequence: Sequence = None,
) -> None:
    """Register a node, so that it may hold replicas.

    It is taken for dead when no heartbeat follows: placer send heartbeat ID.
    """
    if rackdc is not None:
        from streaming.locations import read_rackdc

        location = read_rackdc(rackdc)
    fields = _about_node(node_id, incarnation, sequence) | {
        "location": location,
        "host": host,
        "tags": _tags(tag),
        "weight": weight,
        "capacity": capacity,
        "leader": False if no_leader else None,
        "liveness": "external" if external else None,
        "replaces": replaces,
    }
    _send("nodes.v1", "NodeRegistered", node_id, fields, settings)


@app.command()
@with_options(settings=connection_options)
def heartbeat(
    settings: "Settings",
    node_id: Node,
    incarnation: Incarnation = "manual",
    stopping: Annotated[
        bool,
        typer.Option(
            "--stopping", help="Announce a restart: the next incarnation takes over at once."
        ),
    ] = False,
    sequence: Sequence = None,
) -> None:
    """Say that a node lives."""
    fields = _about_node(node_id, incarnation, sequence) | {"stopping": stopping or None}
    _send("nodes.v1", "NodeHeartbeat", node_id, fields, settings)


@app.command()
@with_options(settings=connection_options)
def locality(
    settings: "Settings",
    node_id: Node,
    location: Annotated[str, typer.Option("--location", metavar="/A/B", help="The new place.")],
    tag: TagOption = None,
    incarnation: Incarnation = "manual",
    sequence: Sequence = None,
) -> None:
    """Say that a node now stands elsewhere; tags, if given, replace all it had."""
    fields = _about_node(node_id, incarnation, sequence)
    fields |= {"location": location, "tags": _tags(tag)}
    _send("nodes.v1", "NodeLocalityChanged", node_id, fields, settings)


@app.command()
@with_options(settings=connection_options)
def unregister(
    settings: "Settings",
    node_id: Node,
    incarnation: Incarnation = "manual",
    sequence: Sequence = None,
) -> None:
    """Say that a node leaves for good; its replicas are replaced at once."""
    fields = _about_node(node_id, incarnation, sequence)
    _send("nodes.v1", "NodeUnregistered", node_id, fields, settings)


@app.command()
@with_options(settings=connection_options)
def report(
    settings: "Settings",
    node_id: Node,
    status: Annotated[str, typer.Argument(metavar="up|down", help="What the detector found.")],
    incarnation: Incarnation = "manual",
    sequence: Sequence = None,
) -> None:
    """Say, as an external failure detector, whether a node lives that registered so."""
    if status not in ("up", "down"):
        raise typer.BadParameter(f"expected up or down, got {status!r}")
    fields = _about_node(node_id, incarnation, sequence) | {"status": status}
    _send("detector.v1", "NodeLivenessReported", node_id, fields, settings)


@app.command()
@with_options(settings=connection_options)
def stream(
    settings: "Settings",
    name: Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.")],
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", help="How many shards it has. [dim]default: 1[/dim]", show_default=False
        ),
    ] = None,
    rf: Annotated[
        int | None,
        typer.Option(
            "--rf",
            help="Replication factor: copies of each shard. [dim]default: 3[/dim]",
            show_default=False,
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies", help="A placement_policies string: 'node=exclusive;shard=balanced'."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="YAML", help="A policy: '{strategy: spread, within: \\[/az1]}'."
        ),
    ] = None,
    alter: Annotated[
        bool, typer.Option("--alter", help="Change a stream; what is not given stays as it is.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop a stream and its replicas.")] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Of a new stream: it has replicas, which placer send observation names."
        ),
    ] = False,
    uid: Uid = None,
    sequence: Sequence = None,
) -> None:
    """Ask for a new stream, change one, or drop it, without waiting. The answer appears on the
    decisions topic; placer stream checks the request and shows the answer."""
    if policies is not None and policy is not None:
        raise typer.BadParameter("--policies and --policy exclude each other")
    given: dict[str, Any] = {"shards": shards, "replication_factor": rf}
    given |= {"placement_policies": policies, "policy": parse_mapping(policy)}
    fields: dict[str, Any] = {"stream": name, "sequence": _sequence(sequence), "uid": uid}
    if adopt and (alter or drop):
        raise typer.BadParameter("--adopt is of a new stream only")
    if drop:
        if alter or any(value is not None for value in given.values()):
            raise typer.BadParameter("--drop takes no option that describes a stream")
        _send("streams.v1", "StreamDropped", name, fields, settings)
    elif alter:
        from streaming.requests import overlay_spec, read_streams, spec_fields

        known = read_streams(settings).get(name)
        if sequence is None:
            fields["sequence"] = max(fields["sequence"], known.sequence + 1)
        fields |= overlay_spec(spec_fields(known.spec), given)
        _send("streams.v1", "StreamAltered", name, fields, settings)
    else:
        fields |= {**given, "shards": 1 if shards is None else shards}
        fields["replication_factor"] = 3 if rf is None else rf
        fields["adopt"] = "observed" if adopt else None
        _send("streams.v1", "StreamCreated", name, fields, settings)


# What an executor can say of a move or of a replica, and the message that says it.
ACKS = {
    "accepted": "MoveAccepted",
    "progressed": "MoveProgressed",
    "completed": "MoveCompleted",
    "failed": "MoveFailed",
    "stopped": "MoveStopped",
    "lost": "ReplicaLost",
}


@app.command()
@with_options(settings=connection_options)
def ack(
    settings: "Settings",
    what: Annotated[
        str, typer.Argument(metavar="|".join(ACKS), help="What the executor reports of the move.")
    ],
    shard: Annotated[str, typer.Option("--shard", metavar="STREAM/N", help="The shard it is on.")],
    move: Annotated[
        str | None,
        typer.Option("--move", metavar="ID", help="The move's id. [dim]not for lost[/dim]"),
    ] = None,
    node_id: Annotated[str | None, typer.Option("--node", help="The node that reports it.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="For people.")] = None,
    bytes_done: Annotated[
        int | None,
        typer.Option("--bytes-done", min=0, help="Bytes that are copied. [dim]progressed[/dim]"),
    ] = None,
    bytes_total: Annotated[
        int | None,
        typer.Option("--bytes-total", min=0, help="Bytes of the copy. [dim]progressed[/dim]"),
    ] = None,
    uid: Uid = None,
) -> None:
    """Acknowledge a move, as its executor does, or say that a replica is lost on --node."""
    if what not in ACKS:
        raise typer.BadParameter(f"expected {', '.join(ACKS)}, got {what!r}")
    if what != "lost" and move is None:
        raise typer.BadParameter("--move: name the move")
    if what != "progressed" and (bytes_done is not None or bytes_total is not None):
        raise typer.BadParameter("--bytes-done and --bytes-total are of progressed only")
    stream_name, number = _shard(shard, "--shard")
    fields = {
        "move_id": move,
        "stream": stream_name,
        "shard": number,
        "node_id": node_id,
        "reason": reason,
        "bytes_done": bytes_done,
        "bytes_total": bytes_total,
        "uid": uid,
    }
    _send("acks.v1", ACKS[what], f"{stream_name}/{number}", fields, settings)


@app.command()
@with_options(settings=connection_options)
def observation(
    settings: "Settings",
    shard: Annotated[str, typer.Argument(metavar="STREAM/N", help="The shard that was looked at.")],
    epoch: Annotated[
        int, typer.Option("--epoch", min=0, help="Epoch of the assignment that was carried out.")
    ],
    replicas: Annotated[
        str,
        typer.Option("--replicas", metavar="NODE,...", help="Nodes with a replica, leader first."),
    ],
    leader: Annotated[str | None, typer.Option("--leader", help="The node that leads now.")] = None,
    in_sync: Annotated[
        str | None,
        typer.Option("--in-sync", metavar="NODE,...", help="Nodes with a complete replica."),
    ] = None,
    following: Annotated[
        list[str] | None,
        typer.Option(
            "--following",
            metavar="NODE,...",
            help="The same of the next shard of the stream, and so on; may be repeated.",
        ),
    ] = None,
    uid: Uid = None,
) -> None:
    """Report where the replicas of a shard are now, as its executor does; the record follows."""
    stream_name, number = _shard(shard, "STREAM/N")
    fields = {
        "stream": stream_name,
        "shard": number,
        "epoch": epoch,
        "replicas": _names(replicas),
        "leader": leader,
        "in_sync": None if in_sync is None else _names(in_sync),
        "following": [_names(each) for each in following] if following else None,
        "uid": uid,
    }
    _send("acks.v1", "ReplicasObserved", f"{stream_name}/{number}", fields, settings)


def _shard(given: str, option: str) -> tuple[str, int]:
    """Read STREAM/N."""
    stream_name, _, number = given.rpartition("/")
    if not stream_name or not number.isdecimal():
        raise typer.BadParameter(f"{option}: expected STREAM/N, e.g. orders/0, got {given!r}")
    return stream_name, int(number)


def _names(given: str) -> list[str]:
    """Read names separated by commas; empty text names none."""
    return [name.strip() for name in given.split(",") if name.strip()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sequence(given: int | None) -> int:
    """Rises by itself from one command to the next, also over restarts of everything."""
    return _now_ms() if given is None else given


def _about_node(node_id: str, incarnation: str, sequence: int | None) -> dict[str, Any]:
    return {"node_id": node_id, "incarnation": incarnation, "sequence": _sequence(sequence)}


def _tags(given: list[str] | None) -> dict[str, str] | None:
    pairs = [tag.partition("=") for tag in given or ()]
    for key, equals, value in pairs:
        if not key or not equals:
            raise typer.BadParameter(f"--tag: expected KEY=VALUE, got {key + equals + value!r}")
    return {key: value for key, _, value in pairs} or None


def _send(
    topic: str,
    message: str,
    key: str,
    fields: dict[str, Any],
    settings: "Settings",
) -> None:
    """Send one record if the reconciler would take it, and print where it went."""
    from schemas.topics import full_name
    from streaming.sending import make_record, send_records

    number = fields.get("sequence") or fields.get("move_id") or _now_ms()
    identity = f"{message}:{key}:{number}"
    record = make_record(topic, message, key, fields, settings.cell, identity)
    (sent,) = send_records(settings, [record])
    typer.echo(f"{full_name(topic, settings.topics.prefix)}-{sent.partition}@{sent.offset}")
