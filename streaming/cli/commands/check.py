"""`placer check FILE`: judge the assignments of a cluster file by the rules of their policies."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.documents import File, answer_documents, assign, read_assignments
from streaming.cli.options import (
    FailOn,
    FailOnOption,
    Output,
    OutputOption,
    PluginOption,
    StrictOption,
)
from streaming.cli.plan_options import Assigned

if TYPE_CHECKING:
    from streaming.offline import CheckResult


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "check",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer check cluster.yaml\n\n"
        "  placer check cluster.yaml --lose /eu/az1 --lose power=b    "
        "[dim]# what would be below quorum[/dim]\n\n"
        "  placer check cluster.yaml --fail 1%    [dim]# probability that data is lost[/dim]\n\n"
        "  placer check cluster.yaml --report --output json | jq .report\n\n"
        "Exit code 1: a violation was found, or a stream is refused; 2: a document is malformed.",
    )(check)


def check(
    file: File,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose",
            metavar="DOMAIN|TAG",
            help="Check as if this domain (/eu/az1), tag (key=value) or node were dead; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        str | None,
        typer.Option(
            "--fail",
            metavar="PERCENT|N",
            help="Add the probability that data is lost when so many nodes fail at once: 1% "
            "(rounded down) or a number.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Add Kudu's report: replicas and leaders by node, skew by stream and location, "
            "where rules are broken; and what a plan would move.",
        ),
    ] = False,
    assignments: Assigned = None,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    _plugin: PluginOption = None,
) -> None:
    """Report violations of rules, which of them a plan can repair, and the health of streams."""
    from placement.assignments import parse_failures
    from streaming.cli.render.check import show_check
    from streaming.offline import CheckOptions, NoMatchingNode, check_body, check_cluster

    if fail is not None and parse_failures(fail, 1) is None:
        raise typer.BadParameter(
            f"'{fail}' is neither a number nor a percentage", param_hint="--fail"
        )

    def is_failure(answer: "CheckResult") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        wrong = answer.fixable if fail_on is FailOn.FIXABLE else answer.diagnosis.violations
        return bool(wrong or answer.refused)

    assigned = read_assignments(assignments)
    asked = CheckOptions(tuple(lose or ()), fail, report)
    try:
        answer_documents(
            file,
            output,
            lambda each: check_cluster(assign(each, assigned), asked),
            check_body,
            show_check,
            is_failure,
            strict=strict,
            doing="checking",
        )
    except NoMatchingNode as error:
        raise typer.BadParameter(str(error), param_hint="--lose") from error
