"""What the pages of operators say, from records and requests that were built, without a browser."""

import pytest

from schemas.cluster import Cluster, ClusterNode, ClusterStream
from streaming.console.change_picture import apply_moves, list_changes
from streaming.console.pages.requests import impact_sentences
from streaming.console.pages.what_if import (
    WhatIfRefused,
    outcome_sentences,
    parse_what_if,
    try_what_if,
)
from streaming.offline import Document
from tests.builders.api_service import ServedModel
from tests.builders.console_app import console_client, live_console, texts_of

NODES = tuple(ClusterNode(id=f"n{n}", location=f"/eu/z{n % 3}") for n in range(6))
STREAM = ClusterStream(
    stream="s", shards=2, replication_factor=2, replicas=(("n0", "n3"), ("n1", "n2"))
)
FILE = Document(
    Cluster(
        name=None, levels=("region", "zone"), nodes=NODES, streams=(STREAM,), moves=(), resources={}
    )
)


def test_moves_are_counted_before_and_after() -> None:
    moves = [
        {"kind": "replace", "remove": "n0", "add": "n4"},
        {"kind": "add", "remove": None, "add": "n4"},
        {"kind": "leader", "remove": None, "add": None, "leader": "n1"},
    ]
    after = apply_moves({"n0": 2, "n1": 1}, moves)
    assert {name: n for name, n in after.items() if n} == {"n0": 1, "n1": 1, "n4": 2}
    places = {"n0": "/eu/z0/r1", "n1": "/eu/z1", "n4": "/eu/z1"}
    found = [
        (each.name, each.before, each.after)
        for each in list_changes({"n0": 2, "n1": 1}, after, places)
    ]
    assert found == [("/eu/z0", 2, 1), ("/eu/z1", 1, 3), ("n0", 2, 1), ("n4", 0, 2)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"factor": "many"}, "factor: 'many' is no number from 1 to 64"),
        ({"factor": "=3"}, "factor: '=3'"),
        ({"add": "three"}, "add: 'three' is not of the form"),
        ({"add": "9999 in /eu"}, "add: at most 500 nodes"),
        ({"add": "1 in eu"}, "add: "),
    ],
)
def test_what_cannot_be_supposed_is_refused_by_its_field(values: dict[str, str], said: str) -> None:
    with pytest.raises(WhatIfRefused) as refused:
        parse_what_if(values)
    assert str(refused.value).startswith(said)


def test_a_lost_zone_costs_a_quorum_and_moves() -> None:
    found = try_what_if(FILE, parse_what_if({"lose": "/eu/z0"}))
    assert [(each["stream"], each["shard"], each["live"]) for each in found.lost] == [("s", 0, 0)]
    said = [sentence for _, sentence in outcome_sentences(found)]
    assert said[0] == "1 shard loses its quorum until the nodes are back."


def test_a_domain_that_is_not_there_is_named_at_its_field() -> None:
    with pytest.raises(WhatIfRefused, match=r"^drain: .*/mars"):
        try_what_if(FILE, parse_what_if({"drain": "/mars"}))


def test_an_impact_is_told_in_words() -> None:
    impact = {"nodes": 1, "shards": 2, "streams": 1, "moves": [{}, {}], "waves": 1, "copies": 2}
    said = impact_sentences({**impact, "crossing": 0, "level": "zone"})
    assert said == [
        "It touches 1 node, 2 shards, 1 stream.",
        "2 moves follow in 1 wave: 2 copies, 0 of them from another zone.",
    ]


def test_a_console_that_only_reads_offers_no_form() -> None:
    with console_client(live_console(ServedModel().fill())) as client:
        page = client.get("/requests")
    said = texts_of(page.text)
    assert "Dry run" not in said
    assert "placer console --operate --tokens tokens.yaml" in said


@pytest.mark.parametrize("path", ["/moves", "/alerts", "/what-if", "/dead-letters"])
def test_pages_open_on_a_quiet_cell(path: str) -> None:
    with console_client(live_console(ServedModel().fill())) as client:
        assert client.get(path).status_code == 200
