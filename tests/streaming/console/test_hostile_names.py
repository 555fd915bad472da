"""Goal: whatever stands in a name is shown as a text, on every page.

Method: nodes whose hosts and tags would be markup, templates, or turn the text around. Ids that
would be any are refused before they get into the state.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from placement.model import Liveness, NodeAttributes, NodeChanged
from tests.builders.api_service import ServedModel
from tests.builders.console_app import console_client, elements_of, live_console

# As hosts may be, and as only a foreign writer of the topics could have them.
HOSTS = ("<script>alert(1)</script>", "</script><img/src=x>", "${alert(1)}`", "{{7*7}}")
FORGED = ("</script><img src=x onerror=alert(1)>", "\u202egnp.exe", "x" * 4_096)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    served = ServedModel().fill()
    _add_nodes(served, HOSTS)
    with console_client(live_console(served)) as client:
        yield client


def cells_of(page: str) -> list[Any]:
    (table,) = [each for each in elements_of(page) if "columns" in each.get("props", {})]
    return [cell for row in table["props"]["page"]["rows"] for cell in row]


def _add_nodes(served: ServedModel, hosts: Sequence[str]) -> None:
    for number, host in enumerate(hosts):
        attributes = NodeAttributes("/a/r1", host=host, tags=(("rack", host),))
        served.commit(NodeChanged(3, f"h{number}", "a", 1, Liveness.UP, attributes))


PATHS = ("/", "/nodes", "/locations", "/streams", "/streams/orders", "/streams/orders/shards/1")


@pytest.mark.parametrize("path", [*PATHS, *(f"/nodes/h{n}" for n in range(len(HOSTS)))])
def test_no_page_holds_a_name_as_markup(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    for word in ("<script>alert", "<img", "${alert"):
        assert word not in answer.text.replace('<img src="/assets/icon.svg"', "")


def test_names_are_isolated_from_the_direction_of_the_text_around(client: TestClient) -> None:
    for number, host in enumerate(HOSTS):
        elements = elements_of(client.get(f"/nodes/h{number}").text)
        shown = [each for each in elements if each.get("text") in (host, f"rack={host}")]
        assert len(shown) == 2
        assert all(each["tag"] == "bdi" for each in shown)


def test_forged_names_are_shown_whole_or_cut_with_a_mark() -> None:
    served = ServedModel().fill()
    _add_nodes(served, FORGED)
    with console_client(live_console(served)) as client:
        for path in PATHS[:4]:
            page = client.get(path).text
            assert "onerror=alert(1)>" not in page, path
        words = [cell for cell in cells_of(client.get("/nodes").text) if isinstance(cell, str)]
    assert FORGED[0] in words
    assert FORGED[1] in words
    (cut,) = [word for word in words if word.startswith("xxx")]
    assert cut.endswith("…")
    assert len(cut) < 400
