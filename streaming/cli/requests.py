"""Options, previews and answers of the commands that ask the running reconciler for something."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import format_count
from streaming.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.requests import OperatorRequest
    from streaming.requests import DryRun
    from streaming.settings import Settings

EXIT_REFUSED = 1
# The reconciler answers within a batch, a second or so; one that is starting takes half a minute.
TIMEOUT_SECONDS = 30.0

Timeout = Annotated[
    float,
    typer.Option("--timeout", "--timeout-seconds", min=0.1, help="Seconds to wait for the answer."),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Send the request, print where it went, and do not wait.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only show the impact and its hash; send nothing.")
]
HashOption = Annotated[
    str | None,
    typer.Option(
        "--hash",
        metavar="H",
        help="Hash of the impact that was seen; another impact is refused.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Accept the impact as a dry run shows it now.")]
Why = Annotated[str | None, typer.Option("--reason", help="For people.", show_default=False)]


@dataclass(frozen=True, slots=True)
class AgreementOptions:
    """The options with which a person agrees to the impact of a request."""

    hash: HashOption = None
    yes: Yes = False


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The options of every command that waits for an answer."""

    no_wait: NoWait = False
    timeout: Timeout = TIMEOUT_SECONDS
    output: OutputOption = Output.TEXT


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of every operator's request, and how one is made with them."""

    dry_run: DryRunOption = False
    reason: Why = None
    no_wait: NoWait = False
    timeout: Timeout = TIMEOUT_SECONDS
    output: OutputOption = Output.TEXT

    def send(
        self,
        settings: "Settings",
        message: "type[OperatorRequest]",
        agreeing: AgreementOptions | None = None,
        **fields: Any,
    ) -> None:
        """Preview a request where that is required, then send it and show the answer. Ends the
        command where it is refused. `agreeing`: the options with which a person agrees to an
        impact, of a request that may need it."""
        agreed = agreeing is not None and (agreeing.yes or agreeing.hash is not None)
        if self.dry_run and (agreed or self.no_wait):
            raise typer.BadParameter("--dry-run sends nothing: leave out --yes, --hash, --no-wait")
        request = _make_request(
            message, fields | {"reason": self.reason}, agreeing.hash if agreeing else None
        )
        if self.dry_run or (agreeing is not None and agreeing.hash is None):
            request = self._preview(settings, request, agreeing)
        if self.dry_run:
            return
        if self.no_wait:
            self._send_only(settings, request)
            return
        from streaming.requests import send_request_and_wait

        answer = send_request_and_wait(settings, request, self.timeout)
        hint = _suggest_target(settings, request.target, answer["reason"])
        _print_answer(answer, hint, self.output)
        if answer["outcome"] != "accepted":
            raise typer.Exit(EXIT_REFUSED)

    def _preview(
        self, settings: "Settings", request: "OperatorRequest", agreeing: AgreementOptions | None
    ) -> "OperatorRequest":
        """The request with the hash of its impact, once that was shown and agreed to."""
        from streaming.requests import dry_run

        shown = dry_run(settings, request)
        form = self.output if self.dry_run else Output.TEXT
        hint = _suggest_target(settings, request.target, shown.summary["refusal"])
        _show(shown, request.target, hint, form, err=not self.dry_run)
        if shown.seen.refusal is not None:
            raise typer.Exit(EXIT_REFUSED)
        if self.dry_run or not shown.seen.destructive:
            return request
        confirm("Carry it out?", agreeing is not None and agreeing.yes, "--yes or --hash")
        return request.model_copy(update={"expected_impact_hash": shown.seen.hash})

    def _send_only(self, settings: "Settings", request: "OperatorRequest") -> None:
        from streaming.requests import send_request

        print_requests(settings, [(request.target, send_request(settings, request))], self.output)


def confirm(question: str, agreed: bool, options: str) -> None:
    """Ask a person at a terminal; where there is none, `agreed` has to say it already."""
    if agreed or (sys.stdin.isatty() and typer.confirm(question, err=True)):
        return
    raise typer.BadParameter(f"look at the impact, then add {options}")


def print_requests(settings: "Settings", sent: Any, output: Output) -> None:
    """Say where requests went, each with what it is about; nobody waits for their answers."""
    from schemas.topics import full_name

    for name, place in sent:
        topic = full_name(place.topic, settings.topics.prefix)
        if output is Output.JSON:
            import orjson

            body = {"sent": name, "topic": topic, "partition": place.partition}
            typer.echo(orjson.dumps(body | {"offset": place.offset}))
        else:
            typer.echo(f"{name} sent: {topic}-{place.partition}@{place.offset}")


def _make_request(
    message: "type[OperatorRequest]", fields: dict[str, Any], agreed: str | None
) -> "OperatorRequest":
    from pydantic import ValidationError

    from streaming.requests import new_request_id

    given = {name: value for name, value in fields.items() if value is not None}
    given |= {"request_id": new_request_id()} | ({"expected_impact_hash": agreed} if agreed else {})
    try:
        return message(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{first['loc'][0]}: {first['msg']}") from error


def _suggest_target(settings: "Settings", target: str, reason: "Mapping[str, Any] | None") -> str:
    """Name the targets that are spelt like an unknown one."""
    if reason is None or reason["code"] not in ("NODE_UNKNOWN", "DOMAIN_UNKNOWN"):
        return ""
    from streaming.requests import suggest_names

    return suggest_names(settings, target)


def _show(shown: "DryRun", target: str, hint: str, output: Output, err: bool) -> None:
    summary = shown.summary
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps({"target": target, **summary}))
        return
    refusal = summary["refusal"]
    if refusal is not None:
        said = f"{refusal['code']} {refusal['message']}{hint}"
        typer.secho(said, fg=typer.colors.RED, err=err)
        return
    typer.echo(f"{target}: {shown.seen}", err=err)
    for each in shown.seen.relocated:
        typer.echo(f"  {each}", err=err)
    if shown.rehearsal is not None:
        from streaming.cli.render.console import text_console
        from streaming.cli.render.plan import show_rehearsal

        show_rehearsal(text_console(stderr=err), shown.rehearsal)
    else:
        first = format_count(summary["moves_at_once"], "move")
        rest = "{waiting} waiting for limits, {blocked} blocked".format(**summary)
        typer.echo(f"{first} at once, {rest}", err=err)
    if shown.seen.destructive:
        typer.echo(f"hash {shown.seen.hash}", err=err)


def _print_answer(answer: Any, hint: str, output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(answer))
        return
    accepted, reason = answer["outcome"] == "accepted", answer["reason"]
    colour = typer.colors.GREEN if accepted else typer.colors.RED
    typer.secho(f"{'accepted' if accepted else 'refused'}: ", fg=colour, nl=False)
    typer.echo(f"{reason['code']} {reason['message']}{hint}")
