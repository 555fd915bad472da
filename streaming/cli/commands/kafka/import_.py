"""`placer kafka import`: a running cluster as a cluster file for the offline commands."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import format_count
from streaming.cli.commands.kafka.group import app
from streaming.cli.options import (
    Bootstrap,
    Config,
    Output,
    PluginOption,
    load_connection,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.kafka_bridge import ImportedCluster, ImportOptions, TopicPolicy
    from streaming.settings import Settings

# A stream that is refused, as in `check` and `plan`.
EXIT_REFUSED = 1


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The options that select topics and give them policies."""

    include: Annotated[
        str | None,
        typer.Option(
            "--include",
            metavar="REGEX",
            help="Only topics whose whole name matches.",
            show_default=False,
        ),
    ] = None
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="REGEX",
            help="Leave out topics whose whole name matches.",
            show_default=False,
        ),
    ] = None
    internal: Annotated[
        bool,
        typer.Option(
            "--internal/--no-internal",
            help="With topics that brokers make for themselves, such as __consumer_offsets.",
        ),
    ] = True
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="REGEX=POLICY",
            help="Policy of topics whose whole name matches: a mapping in YAML or JSON, a "
            "strategy's name, or placement_policies. Repeatable, the first that matches counts. "
            "[dim]default: even over racks[/dim]",
            show_default=False,
        ),
    ] = None
    policies: Annotated[
        Path | None,
        typer.Option(
            "--policies",
            metavar="FILE",
            help="Policies in YAML, a mapping of REGEX to POLICY; tried after --policy.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class BrokerNames:
    """The options that say how racks are read."""

    levels: Annotated[
        str,
        typer.Option(
            "--levels",
            metavar="NAMES",
            help="Names of the tiers of a rack, top first: zone,rack.",
        ),
    ] = "rack"
    separator: Annotated[
        str | None,
        typer.Option(
            "--separator",
            metavar="TEXT",
            help="What stands between the tiers of a rack: / for eu1/r7.",
            show_default=False,
        ),
    ] = None


FencedIsDead = Annotated[
    bool,
    typer.Option(
        "--fenced-is-dead",
        help="Import fenced brokers as dead, so that a plan replaces their replicas.",
    ),
]


def _connect(bootstrap: Bootstrap = None, config: Config = None) -> "Settings":
    """Read the settings with the options that find the cluster."""
    return load_connection(config, bootstrap, None)


@app.command(
    "import",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer kafka import --bootstrap kafka:9092 > cluster.yaml\n\n"
    "  placer kafka import --bootstrap kafka:9092 | placer check -    "
    "[dim]# is every partition safe?[/dim]\n\n"
    "  placer kafka import --bootstrap kafka:9092 --fenced-is-dead | placer plan - "
    "--until-balanced --output-dir waves\n\n"
    "  placer kafka import --bootstrap kafka:9092 --policy 'audit\\..*={rules: "
    "\\[{at_most: 1, per: rack}]}'\n\n"
    "Nothing is changed. One broker is asked after the other until two in a row agree, because one "
    "that lags shows an earlier cluster. What a person should know of the import is said on "
    "standard error. Exit code 1: the file has a stream that check and plan refuse; 2: an "
    "option or a rack cannot be read; 3: no broker answers, no two brokers agree, or this user has "
    "no right to ask.",
)
@with_options(topics=TopicOptions, brokers=BrokerNames, settings=_connect)
def import_(
    topics: TopicOptions,
    brokers: BrokerNames,
    settings: "Settings",
    fenced_is_dead: FencedIsDead = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            "--timeout-seconds",
            min=0,
            max=3_600,
            help="How long to look at a cluster that changes, until two brokers agree.",
        ),
    ] = 30.0,
    output: Annotated[
        Output,
        typer.Option("--output", help="text: a cluster file in YAML; json: the same on one line."),
    ] = Output.TEXT,
    _plugin: PluginOption = None,
) -> None:
    """Write a cluster file of a running Kafka cluster: brokers, racks, topics, sizes."""
    wanted = replace(read_import_options(topics, brokers), fenced_is_dead=fenced_is_dead)
    address, clients = settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
    found = _import(address, clients, wanted, timeout)
    refused = _find_refused(found.body)
    _print(found.body, output)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    for sentence in refused:
        typer.secho(sentence, fg=typer.colors.RED, err=True)
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def read_import_options(topics: TopicOptions, brokers: BrokerNames) -> "ImportOptions":
    """Read which topics are chosen and how racks are read; raises BadParameter."""
    from streaming.kafka_bridge import ImportOptions

    names = tuple(name.strip() for name in brokers.levels.split(","))
    if len(names) > 1 and not brokers.separator:
        message = f"{len(names)} levels need --separator, the text between the tiers of a rack"
        raise typer.BadParameter(message, param_hint="--levels")
    return ImportOptions(
        include=_compile(topics.include, "--include"),
        exclude=_compile(topics.exclude, "--exclude"),
        internal=topics.internal,
        levels=names,
        separator=brokers.separator or None,
        policies=[
            *map(_parse_topic_policy, topics.policy or ()),
            *_read_policies(topics.policies),
        ],
    )


def _import(
    bootstrap: str, options: "Mapping[str, str]", wanted: "ImportOptions", timeout_seconds: float
) -> "ImportedCluster":
    """Look at the cluster until two brokers agree."""
    from streaming.kafka_bridge import (
        KafkaAdmin,
        PolicyUnreadable,
        RackUnreadable,
        import_cluster,
        look_until_settled,
    )

    with KafkaAdmin(bootstrap, options) as admin:
        snapshot = look_until_settled(admin, timeout_seconds)
    try:
        return import_cluster(snapshot, wanted)
    except RackUnreadable as error:
        raise typer.BadParameter(str(error), param_hint="--levels, --separator") from error
    except PolicyUnreadable as error:
        raise typer.BadParameter(str(error), param_hint="--policy, --policies") from error


def _print(body: "Mapping[str, Any]", output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(body))
    else:
        from streaming.offline import cluster_text

        typer.echo(cluster_text(body), nl=False)


def _find_refused(body: "Mapping[str, Any]") -> list[str]:
    """Say of each policy that the core refuses which topics ask for it, and why.

    One stream is asked about for each policy. A file that is no cluster file at all, as with a
    level's name that is none, is a usage error.
    """
    from schemas.cluster import DocumentError, parse_cluster
    from streaming.offline import CheckOptions, Document, check_cluster

    alike: dict[str, list[dict[str, Any]]] = {}
    for stream in body["streams"]:
        alike.setdefault(_policy_text(stream), []).append(stream)
    cluster = parse_cluster({**body, "streams": [streams[0] for streams in alike.values()]})
    if isinstance(cluster, DocumentError):
        raise typer.BadParameter(cluster.message)
    refused = check_cluster(Document(cluster), CheckOptions()).refused
    reasons = {each["stream"]: each["reasons"][0]["message"] for each in refused}
    return [
        f"{format_count(len(streams), 'stream is', 'streams are')} refused "
        f"({', '.join(_first_names(streams))}): {reasons[streams[0]['stream']]}"
        for streams in alike.values()
        if streams[0]["stream"] in reasons
    ]


def _policy_text(stream: "Mapping[str, Any]") -> str:
    """The policy with the replication factor, which a policy may contradict."""
    import orjson

    asked = [stream.get(each) for each in ("policy", "placement_policies", "replication_factor")]
    return orjson.dumps(asked, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


# Of many streams of one refused policy the first stand for all.
_NAMED_MAX = 5


def _first_names(streams: "Sequence[Mapping[str, Any]]") -> list[str]:
    names = [str(stream["stream"]) for stream in streams[:_NAMED_MAX]]
    return [*names, "…"] if len(streams) > _NAMED_MAX else names


def _compile(pattern: str | None, hint: str) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        message = f"'{pattern}' is no regular expression: {error}"
        raise typer.BadParameter(message, param_hint=hint) from error


def _parse_topic_policy(text: str) -> "TopicPolicy":
    """`REGEX=POLICY`; names of topics have no `=`."""
    from streaming.kafka_bridge import PolicyUnreadable, TopicPolicy, parse_policy

    pattern, equals, policy = text.partition("=")
    if not pattern or not equals or not policy.strip():
        message = f"'{text}' is not REGEX=POLICY, such as 'orders.*={{strategy: spread}}'"
        raise typer.BadParameter(message, param_hint="--policy")
    compiled = _compile(pattern, "--policy")
    assert compiled is not None
    try:
        return TopicPolicy(compiled, parse_policy(policy))
    except PolicyUnreadable as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error


def _read_policies(file: Path | None) -> "list[TopicPolicy]":
    """The policies of a file, in its order."""
    if file is None:
        return []
    import yaml

    from streaming.kafka_bridge import PolicyUnreadable, TopicPolicy, read_policy

    try:
        value = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else f"not YAML: {error}"
        raise typer.BadParameter(f"{file}: {said}", param_hint="--policies") from error
    if not isinstance(value, dict):
        message = f"{file}: expected a mapping of REGEX to POLICY, it is {type(value).__name__}"
        raise typer.BadParameter(message, param_hint="--policies")
    found = []
    for pattern, policy in value.items():
        compiled = _compile(str(pattern), "--policies")
        assert compiled is not None
        try:
            found.append(TopicPolicy(compiled, read_policy(policy)))
        except PolicyUnreadable as error:
            message = f"{file}: {pattern}: {error}"
            raise typer.BadParameter(message, param_hint="--policies") from error
    return found
