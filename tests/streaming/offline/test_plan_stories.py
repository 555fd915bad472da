"""`placer plan` and `check --report` on documented examples, as stories to be read.

Goal: what the sources say of Kudu, Kafka and its Streams, Cassandra, Elasticsearch, Timeplus and
KIP-879 clusters can be looked up beside what is planned for them. Method: every file in
`testdata/plan_*.txt` is a story of commands on a cluster file; `cluster` takes the file, the others
answer for the last one.

    cluster    lines of YAML; `nodes` may also be `- location n1 n2`, a place and its nodes
    plan       options='…': a line per move, what stays broken, what it comes to; `end=yes` keeps
               the arrangement that the plan ends with for the next command
    report     Kudu's report, its figures in short
    check      the violations of nodes, a line each, and the summary

Of a file with resources a plan also says what is copied, and how far nodes are filled on the way.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from streaming.cli.main import app
from tests.stories.datadriven import CaseError, Command, run_file

TESTDATA = Path(__file__).parent / "testdata"
# Of many moves alike a reader wants the number.
MOVES_SHOWN = 12


class Story:
    """The cluster file that the commands are about."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}

    def answer(self, command: Command) -> str:
        commands = {
            "cluster": self.cluster,
            "plan": self.plan,
            "report": self.report,
            "check": self.check,
        }
        if command.name not in commands:
            raise CaseError(f"unknown command {command.name}")
        return commands[command.name](command)

    def cluster(self, command: Command) -> str:
        self.document = yaml.safe_load("\n".join(command.read()))
        self.document["nodes"] = [node for row in self.document["nodes"] for node in expanded(row)]
        return ""

    def plan(self, command: Command) -> str:
        answer = self.run("plan", command.take("options", ""))
        lines = shown(answer["moves"])
        lines += [
            f"unfixable {each['stream']}/{each['shard']} {each['rule']}"
            f"{' in ' + each['domain'] if each['domain'] else ''}: {each['reason']['code']}"
            for each in answer["unfixable"]
        ]
        lines += [f"{each['code']} {each['message']}" for each in answer["warnings"]]
        traffic, moves = answer["traffic"], len(answer["moves"])
        waves = f" in {len(answer['waves'])} waves" if "waves" in answer else ""
        lines.append(
            f"{moves} moves{waves}: {traffic['copies']} copies, {traffic['crossing']} from another "
            f"{traffic['level']}, at least {answer['lower_bound']} needed"
        )
        lines += loads(answer)
        if command.take("end", "no") == "yes":
            for stream in self.document["streams"]:
                stream["replicas"] = answer["final"]["replicas"][stream["stream"]]
        return "\n".join(lines)

    def check(self, command: Command) -> str:
        answer = self.run("check", command.take("options", ""))
        nodes = [each for each in answer["violations"] if each["stream"] is None]
        lines = [
            f"{each['strength']} {each['rule']} of {each['domain']}, {each['class']}: "
            f"{each['reason']['code']} {each['reason']['message']}"
            for each in nodes
        ]
        lines += [f"{name} {text}" for name, text in utilisation(answer["utilisation"], "domains")]
        return "\n".join([*lines, f"{answer['summary']['violations']}"])

    def report(self, command: Command) -> str:
        report = self.run("check", f"--report {command.take('options', '')}")["report"]
        total = report["total"]
        lines = [f"{name} {count}" for name, count in report["nodes"].items() if total["nodes"] < 9]
        lines += [
            f"{each['stream']}{'/' + each['range'] if each['range'] else ''} skew {each['skew']} "
            f"of {each['replicas']}"
            for each in report["streams"]
        ]
        lines.append(f"all min {total['min']} max {total['max']} skew {total['skew']}")
        for each, skew in zip(report["locations"], report["skews"], strict=True):
            lines.append(
                f"{each['location']} load {each['load']:.6f} skew {skew['min']} to {skew['max']}, "
                f"{each['violations']} violations"
            )
        lines += [
            f"violation {each['domain']} {each['stream']}/{each['shard']} has {each['replicas']} "
            f"of {each['replication_factor']}: {each['rule']}, {each['class']}"
            for each in report["violations"]["details"]
        ]
        plan = report["plan"]
        lines.append(
            f"plan repair {plan['repair']['moves']}, rebalance {plan['rebalance']['moves']}"
        )
        return "\n".join(lines)

    def run(self, name: str, options: str) -> dict[str, Any]:
        text = orjson.dumps(self.document).decode()
        arguments = [name, "-", "--output", "json", *options.split()]
        result = CliRunner().invoke(app, arguments, input=text)
        if not result.stdout:
            raise CaseError(result.stderr)
        answer: dict[str, Any] = orjson.loads(result.stdout)
        return answer


def utilisation(body: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    """Load and capacity by resource, of nodes or domains."""
    return [
        (name, f"{each['load']} of {each['capacity']} {resource}: {each['utilisation']}")
        for resource, found in body.items()
        for name, each in (found[kind] if kind else found).items()
    ]


def loads(answer: dict[str, Any]) -> list[str]:
    """What a plan copies, and what nodes bear before, on the way and after."""
    if "utilisation" not in answer:
        return []
    traffic = answer["traffic"]
    lines = [f"{each['bytes']} bytes {each['from']} -> {each['to']}" for each in traffic["links"]]
    took = f" in {traffic['seconds']} s" if "seconds" in traffic else ""
    lines.append(f"{traffic['bytes']} bytes{took}")
    lines += [
        f"wave {each['wave']}: {each['bytes']} bytes, {each.get('seconds')} s"
        for each in answer.get("waves", ())
    ]
    for resource, peak in answer["peak"].items():
        moments = (answer["utilisation"], answer["final"]["utilisation"])
        for name, most in peak.items():
            before, after = (each[resource]["nodes"][name]["load"] for each in moments)
            if before or after:
                lines.append(f"{name} {before} -> {most['load']} -> {after} {resource}")
    return lines


def expanded(row: Any) -> list[dict[str, Any]]:
    """`/a n1 n2!`: nodes at a place; `!` is dead, `~` draining; `n1..n9` are nine."""
    if isinstance(row, dict):
        return [row]
    location, *words = row.split()
    status = {"!": "dead", "~": "draining"}
    nodes = []
    for word in words:
        first, _, last = word.rstrip("!~").partition("..")
        names = [first]
        if last:
            stem = first.rstrip("0123456789")
            numbers = range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)
            names = [f"{stem}{number}" for number in numbers]
        more = {"status": status[word[-1]]} if word[-1] in status else {}
        nodes += [{"id": name, "location": location} | more for name in names]
    return nodes


def shown(moves: list[dict[str, Any]]) -> list[str]:
    """The moves, or how many of a kind and cause there are."""
    if len(moves) > MOVES_SHOWN:
        kinds = Counter(f"{move['kind']} {move['cause']}" for move in moves)
        return [f"{count} {kind}" for kind, count in kinds.items()]
    lines = []
    for move in moves:
        wave = f"{move['wave']}: " if "wave" in move else ""
        way = f"{move['remove'] or '-'} -> {move['add'] or '-'}"
        leads = f", {move['leader']} leads" if "leader" in move else ""
        way = move["leader"] if move["kind"] == "leader" else way + leads
        size = f", {move['bytes']} bytes" if "bytes" in move else ""
        lines.append(
            f"{wave}{move['stream']}/{move['shard']} {move['kind']} {way} ({move['cause']}){size}"
        )
    return lines


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("plan_*.txt")), ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Story().answer, request.config.getoption("--rewrite"))
