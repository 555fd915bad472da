"""Cluster documents in words, and `placer plan` run on them."""

import orjson
from typer.testing import CliRunner

from streaming.cli.main import app

ZONES = {"a": "/eu/a", "b": "/eu/b", "c": "/us/c", "d": "/us/d"}


def cluster(nodes, *streams, **more):
    """`nodes`: words like a1, or a1:dead; the letter is the zone."""
    listed = []
    for word in nodes.split():
        name, _, status = word.partition(":")
        node = {"id": name, "location": ZONES[name[0]]}
        listed.append(node | ({"status": status} if status else {}))
    return {"levels": ["region", "zone"], "nodes": listed, "streams": list(streams), **more}


def stream(name, *shards, factor=3, **more):
    """`shards`: words of node ids; evenly over zones, as well as may be."""
    replicas = [words.split() for words in shards]
    policy = {"strategy": "spread", "rules": [{"even": "zone", "strength": "preferred"}]}
    asked = {"stream": name, "shards": len(shards), "replication_factor": factor}
    return asked | {"replicas": replicas, "policy": policy} | more


def run(document, *arguments, command="plan"):
    """The result of the command."""
    text = orjson.dumps(document).decode()
    result = CliRunner().invoke(app, [command, "-", *arguments], input=text)
    assert result.exit_code in (0, 1, 2), result.output
    return result


def plan(document, *arguments):
    """Exit code and answer."""
    result = run(document, "--output", "json", *arguments)
    return result.exit_code, orjson.loads(result.stdout.splitlines()[0]) if result.stdout else None


def ways(answer):
    """What each move does."""
    names = ("stream", "shard", "kind", "remove", "add")
    return [tuple(move[name] for name in names) for move in answer["moves"]]
