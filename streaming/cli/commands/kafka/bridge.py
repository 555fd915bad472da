"""`placer kafka bridge`: the agent between a running Kafka cluster and the reconciler."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.commands.kafka.group import app
from streaming.cli.commands.kafka.import_ import (
    BrokerNames,
    TopicOptions,
    read_import_options,
)
from streaming.cli.options import (
    Bootstrap,
    Config,
    Prefix,
    load_connection,
    parse_rate,
    with_options,
)

if TYPE_CHECKING:
    from streaming.kafka_bridge import BridgeOptions, ImportOptions, Monitoring
    from streaming.settings import Settings


class BridgeMode(StrEnum):
    """Names what the agent may do; the words of `streaming.kafka_bridge.Mode`."""

    OBSERVE = "observe"
    DRY_RUN = "dry-run"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class BridgeLimits:
    """The options that say how patient the agent is and how much it moves at once."""

    patience_seconds: Annotated[
        float,
        typer.Option(
            "--patience-seconds",
            min=0,
            max=86_400,
            help="How long a broker is fenced before the reconciler is told that it is down.",
        ),
    ] = 600.0
    forget_seconds: Annotated[
        float,
        typer.Option(
            "--forget-seconds",
            min=0,
            max=604_800,
            help="How long a broker is unregistered before it has left for good.",
        ),
    ] = 600.0
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            min=1,
            metavar="REPLICAS",
            help="The most replicas of a broker. [dim]default: any number[/dim]",
            show_default=False,
        ),
    ] = None
    in_flight: Annotated[
        int,
        typer.Option(
            "--in-flight",
            min=1,
            max=1_000,
            metavar="PARTITIONS",
            help="The most partitions copied to or from a broker at once; fewer while brokers do "
            "not keep up.",
        ),
    ] = 20
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="RATE",
            help="Bytes a second that copies of a broker may take where the move names no rate: "
            "50MB. [dim]default: no throttle[/dim]",
            show_default=False,
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65_535,
            metavar="PORT",
            help="Serve /metrics (Prometheus), /healthz and /readyz on this port. "
            "[dim]default: metrics.port of the settings[/dim]",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Connection:
    """The settings, and the address of the brokers that have the reconciler's topics."""

    settings: "Settings"
    home: str


def _connect(
    bootstrap: Bootstrap = None,
    reconciler: Annotated[
        str | None,
        typer.Option(
            "--reconciler",
            metavar="HOST:PORT",
            help="Brokers that have the reconciler's topics. [dim]default: those of "
            "--bootstrap[/dim]",
            show_default=False,
        ),
    ] = None,
    prefix: Prefix = None,
    config: Config = None,
) -> Connection:
    """Read the settings with the options that find both clusters; each address is checked."""
    settings = load_connection(config, bootstrap, prefix)
    home = settings if reconciler is None else load_connection(config, reconciler, prefix)
    return Connection(settings, home.kafka.bootstrap_servers)


@app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  placer kafka bridge --bootstrap kafka:9092 --mode dry-run    "
    "[dim]# writes nothing anywhere[/dim]\n\n"
    "  placer kafka bridge --bootstrap kafka:9092 --mode observe    "
    "[dim]# for a week[/dim]\n\n"
    "  placer kafka bridge --bootstrap kafka:9092 --mode act --throttle 50MB\n\n"
    "It runs beside placer run, until Ctrl-C, and keeps nothing on disk: kill it and start it "
    "again at any time. Copies that run go on in Kafka meanwhile. Of several agents one works, "
    "the others say which and wait. Exit code 2: an option or the settings cannot be read; 3: the "
    "brokers do not answer when it starts, are older than 4.0, or do not allow what it needs.",
)
@with_options(topics=TopicOptions, brokers=BrokerNames, limits=BridgeLimits, connection=_connect)
def bridge(
    topics: TopicOptions,
    brokers: BrokerNames,
    limits: BridgeLimits,
    connection: Connection,
    mode: Annotated[
        BridgeMode,
        typer.Option(
            "--mode",
            help="observe: tell the reconciler which brokers, topics and replicas there are, and "
            "change nothing in Kafka; dry-run: write nothing at all, and say what would be done; "
            "act: tell and do.",
        ),
    ] = BridgeMode.OBSERVE,
) -> None:
    """Let the reconciler heal and balance a running Kafka cluster: its brokers, its topics."""
    from schemas.access import bridge_lock_id
    from schemas.cluster import SHARD_BYTES_RESOURCE
    from streaming.brokers import KafkaLockStore, LeaderLock
    from streaming.kafka_bridge import Agent, KafkaAdmin, KafkaTopics, Mode, Monitoring
    from streaming.signals import stop_on_signals

    settings, home = connection.settings, connection.home
    counts_disks = SHARD_BYTES_RESOURCE in settings.resources
    options = _bridge_options(read_import_options(topics, brokers), limits, counts_disks)
    address, clients = settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
    prefix = settings.topics.prefix
    wanted = Mode(mode.value)
    lock = None
    if wanted is not Mode.DRY_RUN:
        lock_id = bridge_lock_id(prefix, settings.cell)
        lock = LeaderLock(KafkaLockStore(home, prefix, lock_id, clients))
    with KafkaAdmin(address, clients) as admin, stop_on_signals("stopping") as stop:
        known = KafkaTopics(home, prefix, _tell, clients)
        monitoring = Monitoring(wanted, settings.cell)
        agent = Agent(
            admin, known, lock, _tell, mode=wanted, options=options, monitoring=monitoring
        )
        with _serve(monitoring, settings, limits.metrics_port):
            agent.check()
            _tell(f"bridge ready: mode {wanted}, Kafka at {address}, reconciler's topics at {home}")
            agent.run(stop)


@contextmanager
def _serve(monitoring: "Monitoring", settings: "Settings", port: int | None) -> Iterator[None]:
    """Serve metrics and probes, where a port is set."""
    from streaming.observability import Endpoint

    port = settings.metrics.port if port is None else port
    if port is None:
        yield
        return
    probes = monitoring.check_live, monitoring.check_ready
    with Endpoint(settings.metrics.host, port, monitoring.registry, *probes) as endpoint:
        _tell(f"metrics and probes at http://{endpoint.address}")
        yield


def _bridge_options(
    imports: "ImportOptions", limits: BridgeLimits, counts_disks: bool
) -> "BridgeOptions":
    from streaming.kafka_bridge import BridgeOptions, MembershipOptions

    return BridgeOptions(
        imports,
        MembershipOptions(
            int(limits.patience_seconds * 1000),
            int(limits.forget_seconds * 1000),
            limits.capacity,
            counts_disks,
        ),
        limits.in_flight,
        parse_rate(limits.throttle, "--throttle"),
    )


def _tell(sentence: str) -> None:
    """Print one line of the log, with the local time."""
    typer.echo(f"{time.strftime('%H:%M:%S')} {sentence}")
    sys.stdout.flush()
