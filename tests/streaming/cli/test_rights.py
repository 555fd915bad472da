"""`placer topics acls`: rights as commands and as data, for other principals and prefixes."""

import json
from collections.abc import Callable

from typer.testing import Result

EXECUTORS = ("topics", "acls", "--role", "executors", "--prefix", "p.")


def test_rights_by_prefix_are_commands_of_their_pattern(placer: Callable[..., Result]) -> None:
    shown = placer(*EXECUTORS, "--principal", "executors=User:store")
    assert shown.exit_code == 0
    head, *commands = shown.stdout.splitlines()
    assert head == "# executors"
    assert all("--allow-principal User:store" in each for each in commands)
    prefixed = [each for each in commands if "--resource-pattern-type prefixed" in each]
    assert [each.split(" --operation Describe ")[1] for each in prefixed] == [
        "--transactional-id p.executor/ --resource-pattern-type prefixed",
        "--group p.executor/ --resource-pattern-type prefixed",
    ]
    assert [each.rsplit(" ", 1)[1] for each in commands if each not in prefixed] == [
        "p.acks.v1",
        "p.assignments.v1",
        "p.moves.v1",
    ]


def test_rights_as_data_name_their_pattern(placer: Callable[..., Result]) -> None:
    shown = placer(*EXECUTORS, "--output", "json")
    found = {(each["resource"], each["pattern"]) for each in json.loads(shown.stdout)["acls"]}
    assert found == {
        ("topic", "literal"),
        ("transactional-id", "prefixed"),
        ("group", "prefixed"),
    }
