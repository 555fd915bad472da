"""`placer plan FILE`: what would be moved, and why; what stays broken."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from placement.wording import format_count
from streaming.cli.documents import (
    EXIT_DOCUMENT,
    File,
    answer_documents,
    check_unknown_fields,
    note_unlisted,
    read_assignments,
    read_text,
)
from streaming.cli.options import (
    FailOn,
    FailOnOption,
    Output,
    PluginOption,
    StrictOption,
    parse_rate,
)
from streaming.cli.plan_options import (
    Add,
    Assigned,
    Drain,
    Expect,
    Factors,
    Lose,
    MaxMoves,
    MaxMovesPerNode,
    OutputDir,
    Phase,
    PhaseOption,
    PlanOutput,
    PlanOutputOption,
    Rate,
    Rollback,
    Save,
    Squash,
    UntilBalanced,
    Verify,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.cluster import ClusterNode
    from streaming.offline import Document, PlanOptions, PlanResult, ReassignmentFiles


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "plan",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer plan cluster.yaml\n\n"
        "  placer plan cluster.yaml --lose /eu/az1 --phase repair    "
        "[dim]# what would follow[/dim]\n\n"
        "  placer plan cluster.yaml --drain n1 --output json | jq '.moves[]'\n\n"
        "  placer plan cluster.yaml --until-balanced --max-moves 20    "
        "[dim]# wave by wave to the end[/dim]\n\n"
        "  placer plan deploy/examples/disks.yaml --drain n5 --rate 50MB    "
        "[dim]# bytes, links, and how long[/dim]\n\n"
        "  placer plan deploy/examples/brokers.yaml --rf 2 --output kafka --rollback back.json "
        "> go.json    [dim]# for kafka-reassign-partitions[/dim]\n\n"
        "  placer plan deploy/examples/brokers.yaml --drain 2 --until-balanced --output-dir waves"
        "    [dim]# a file per wave[/dim]\n\n"
        "  placer plan cluster.yaml --save plan.json    "
        "[dim]# and, before it is carried out:[/dim]\n\n"
        "  placer plan cluster.yaml --verify plan.json\n\n"
        "A shard gets at most one move in a plan; carry it out and plan again until nothing is "
        "left, or ask for all waves at once. Exit code 1: a required rule stays broken, or a "
        "stream is refused; 2: a document is malformed, or the cluster is not what a saved plan "
        "was made for. A plan with moves is 0.",
    )(plan)


def plan(
    file: File,
    phase: PhaseOption = Phase.ALL,
    max_moves: MaxMoves = None,
    max_moves_per_node: MaxMovesPerNode = None,
    lose: Lose = None,
    drain: Drain = None,
    add: Add = None,
    rf: Factors = None,
    assignments: Assigned = None,
    until_balanced: UntilBalanced = False,
    rate: Rate = None,
    output: PlanOutputOption = PlanOutput.TEXT,
    output_dir: OutputDir = None,
    squash: Squash = False,
    rollback: Rollback = None,
    save: Save = None,
    verify: Verify = None,
    expect: Expect = None,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    _plugin: PluginOption = None,
) -> None:
    """Show the moves that repair a cluster or even it out; nothing is carried out."""
    if verify is not None:
        other = lose or drain or add or rf or assignments or until_balanced or rate
        bounded = phase is not Phase.ALL or max_moves is not None or max_moves_per_node is not None
        if other or bounded or rollback or save or expect or fail_on or output_dir or squash:
            message = "the saved plan holds the options it was made with: leave out all others"
            raise typer.BadParameter(message, param_hint="--verify")
        if output is PlanOutput.KAFKA:
            message = "a saved plan is verified in text or json: leave out --output kafka"
            raise typer.BadParameter(message, param_hint="--verify")
        _verify(file, verify, output, strict)
    if squash:
        _check_squash(
            until_balanced,
            limited=max_moves is not None or max_moves_per_node is not None,
            written=output is PlanOutput.KAFKA or output_dir is not None,
        )
    from placement.planning import PlanPhase
    from streaming.offline import PlanOptions, WhatIf, plan_moves

    def is_failure(answer: "PlanResult") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        worse = fail_on is FailOn.DEGRADED and bool(answer.unfixable)
        stuck = answer.has_broken_rule and fail_on is not FailOn.FIXABLE
        return bool(stuck or worse or answer.check.refused)

    what_if = WhatIf(
        tuple(lose or ()),
        tuple(drain or ()),
        () if add is None else _read_nodes(add, strict),
        tuple(map(_parse_factor, rf or ())),
        read_assignments(assignments),
    )
    bounds = (max_moves, max_moves_per_node, until_balanced)
    wanted = PlanOptions(PlanPhase(phase), *bounds, what_if, parse_rate(rate, "--rate"))
    files = _Files(save, rollback, output_dir, expect, wanted, squash=squash)
    if output is PlanOutput.KAFKA and output_dir is None:
        files.refuse_waves = True

    def solve(document: "Document") -> "PlanResult":
        note_unlisted(document, what_if.assignments)
        return files.write(plan_moves(document, wanted))

    lines = files.lines if output is PlanOutput.KAFKA else None
    _answer(file, output, solve, files.body, files.show, is_failure, lines, strict=strict)


def _check_squash(until_balanced: bool, *, limited: bool, written: bool) -> None:
    """Refuse --squash where it would do nothing, or break a limit."""
    message = None
    if not until_balanced:
        message = "one plan is one wave already: --squash needs --until-balanced"
    elif limited:
        message = "a limit holds for each wave, and --squash makes one of all: leave out "
        message += "--max-moves and --max-moves-per-node, or --squash"
    elif not written:
        message = "--squash is for Kafka: add --output kafka or --output-dir DIR"
    if message is not None:
        raise typer.BadParameter(message, param_hint="--squash")


def _answer(file: str, output: PlanOutput, *parts: Any, strict: bool) -> None:
    """Answer the documents; what a person has named and is not there is a usage error."""
    from streaming.offline import AssignmentsUnfit, NoMatchingNode, ReassignmentInvalid

    form = Output.JSON if output is PlanOutput.JSON else Output.TEXT
    try:
        answer_documents(file, form, *parts, strict=strict, doing="planning")
    except NoMatchingNode as error:
        raise typer.BadParameter(str(error), param_hint="--lose, --drain, --rf") from error
    except ReassignmentInvalid as error:
        hint = "--output kafka, --output-dir, --rollback"
        raise typer.BadParameter(str(error), param_hint=hint) from error
    except AssignmentsUnfit as error:
        raise typer.BadParameter(str(error), param_hint="--assignments") from error


class _Files:
    """Writes a plan to its files if its impact is the expected one: the saved plan, the way there
    for Kafka's tools and the way back. Tells of the plan and of its files."""

    def __init__(
        self,
        save: Path | None,
        rollback: Path | None,
        directory: Path | None,
        expect: str | None,
        wanted: "PlanOptions",
        *,
        squash: bool,
    ) -> None:
        self._save, self._rollback, self._directory = save, rollback, directory
        self._expect, self._wanted, self._squash = expect, wanted, squash
        self._used = False
        self.refuse_waves = False

    def write(self, answer: "PlanResult") -> "PlanResult":
        """Write the files of the plan and return the plan unchanged."""
        from streaming.offline import saved_plan_text

        impact = answer.impact.hash
        if self._expect is not None and self._expect != impact:
            message = f"the plan's impact is {impact}: the cluster or the options have changed; "
            message += "save a plan with --save, and --verify lists what has changed since"
            raise typer.BadParameter(message, param_hint="--expect")
        texts: dict[Path, str] = {}
        self._check_rate(answer)
        if self.refuse_waves:
            self._refuse_waves(answer)
        if self._directory is not None:
            texts |= self._check_directory(self._directory, answer)
        if self._rollback is not None:
            texts[self._rollback] = answer.present_reassignment() + "\n"
        if self._save is not None:
            texts[self._save] = saved_plan_text(answer, self._wanted)
        if texts and self._used:
            message = (
                "the cluster file has several documents, one plan can be saved: split the file"
            )
            raise typer.BadParameter(message, param_hint="--save, --rollback, --output-dir")
        self._used = True
        for path, text in texts.items():
            try:
                if path.parent == self._directory:
                    path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise typer.BadParameter(f"{path}: {error.strerror}") from error
        return answer

    def body(self, answer: "PlanResult") -> dict[str, Any]:
        """The answer as JSON, with the files for Kafka where they are written."""
        told = {} if self._directory is None else {"kafka": self._for_kafka(answer).body()}
        return answer.body() | told

    def show(self, console: Any, answer: "PlanResult") -> None:
        """Print the plan, and how its files for Kafka are carried out."""
        from streaming.cli.render.plan import show_plan, show_reassignment

        show_plan(console, answer)
        if self._directory is not None:
            show_reassignment(console, self._for_kafka(answer))

    def lines(self, answer: "PlanResult") -> "Iterator[str]":
        """Write the plan as Kafka's tool reads it, or how its files are carried out."""
        files = self._for_kafka(answer)
        if self._directory is not None:
            yield from files.commands()
            return
        yield from files.waves if self._squash else answer.reassignments()
        if files.elections:
            many = format_count(len(files.elections), "partition gets", "partitions get")
            typer.echo(
                f"note: {many} another preferred leader, which leads only after an election: when "
                "the reassignment is complete, run kafka-leader-election --election-type preferred "
                "(--output-dir writes the file for it)",
                err=True,
            )

    def _for_kafka(self, answer: "PlanResult") -> "ReassignmentFiles":
        from streaming.offline import reassignment_files

        return reassignment_files(answer, self._directory, squash=self._squash)

    def _refuse_waves(self, answer: "PlanResult") -> None:
        count = 0 if answer.waves is None else len(answer.waves.plans)
        if count > 1 and not self._squash:
            message = f"the plan has {count} waves, a JSON document each, and "
            message += "kafka-reassign-partitions silently ignores all but the first of a file: "
            message += "write a file per wave with --output-dir DIR, or the net change of all "
            message += "with --squash"
            raise typer.BadParameter(message, param_hint="--output kafka")

    def _check_rate(self, answer: "PlanResult") -> None:
        if self._wanted.rate is not None and not answer.counts_bytes:
            message = "the file does not say how large shards are: it needs resources with "
            message += "disk_bytes, and loads or expected_load of the streams"
            raise typer.BadParameter(message, param_hint="--rate")

    def _check_directory(self, directory: Path, answer: "PlanResult") -> dict[Path, str]:
        """The texts for the directory, in which no others may lie."""
        from streaming.offline import ReassignmentFilesRefused, refuse_foreign_files

        try:
            # A second document's files would not be an earlier plan's.
            if not self._used:
                refuse_foreign_files(directory)
        except (OSError, ReassignmentFilesRefused) as error:
            said = f"{directory}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise typer.BadParameter(said, param_hint="--output-dir") from error
        return self._for_kafka(answer).texts()


def _verify(file: str, plan_file: str, output: PlanOutput, strict: bool) -> NoReturn:
    """Hold a saved plan against the cluster, and end the command."""
    from streaming.cli.render.plan import show_verification
    from streaming.offline import SavedPlanInvalid, VerifyResult, load_plan, verify_plan

    try:
        saved = load_plan(plan_file)
    except (OSError, SavedPlanInvalid) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{plan_file}: {said}", param_hint="--verify") from error
    _answer(
        file,
        output,
        lambda each: verify_plan(each, saved),
        VerifyResult.body,
        show_verification,
        lambda answer: 0 if answer.is_current else EXIT_DOCUMENT,
        strict=strict,
    )
    raise AssertionError("answer_documents ends the command")


def _parse_factor(text: str) -> tuple[str | None, int]:
    """`5` of all streams, `orders=5` of one."""
    name, equals, number = text.rpartition("=")
    if not number.isdecimal() or (equals and not name):
        message = f"'{text}' is neither a number nor STREAM=NUMBER"
        raise typer.BadParameter(message, param_hint="--rf")
    return name or None, int(number)


def _read_nodes(file: str, strict: bool) -> tuple["ClusterNode", ...]:
    """The nodes of another cluster file, which are to join."""
    from schemas.cluster import parse_joining
    from streaming.offline import DocumentFault, parse_documents

    nodes: list[ClusterNode] = []
    for each in parse_documents(read_text(file), parse_joining):
        document = check_unknown_fields(each, file, strict=strict)
        if isinstance(document, DocumentFault):
            raise typer.BadParameter(f"{file}: {document.message}", param_hint="--add")
        nodes.extend(document.cluster.nodes)
    return tuple(nodes)
