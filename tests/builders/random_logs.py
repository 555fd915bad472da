"""Random logs of one partition of the nodes topic, for properties of packing and liveness."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from streaming.codec import RawRecord
from tests.builders.kafka_rows import raw, tick

GAPS = st.sampled_from([0, 100, 400, 900, 1_500, 5_000])
STATEMENTS = ("NodeRegistered", "NodeLocalityChanged", "NodeUnregistered")


@st.composite
def logs(draw: st.DrawFn) -> list[RawRecord]:
    """A partition's log: nodes that speak and fall silent, repeat themselves and come back as
    another incarnation, and ticks."""
    records: list[RawRecord] = []
    said: list[RawRecord] = []
    sequence = Counter[str]()
    at = 0
    kinds = ["beat"] * 6 + ["tick"] * 3 + ["statement"] * 2 + ["repeat"]
    for offset in range(draw(st.integers(1, 50))):
        at += draw(GAPS)
        kind = draw(st.sampled_from(kinds))
        node_id, incarnation = draw(st.sampled_from(["n1", "n2"])), draw(st.sampled_from("aabbc"))
        if kind == "tick":
            records.append(tick(offset, at))
            continue
        if kind == "repeat" and said:
            records.append(draw(st.sampled_from(said))._replace(offset=offset, at=at))
            continue
        sequence[node_id] += 1
        number = sequence[node_id]
        number = max(0, number - draw(st.sampled_from([0, 0, 0, 2, 5])))
        body: dict[str, Any] = {
            "node_id": node_id,
            "incarnation": incarnation,
            "sequence": number,
        }
        message = "NodeHeartbeat" if kind == "beat" else draw(st.sampled_from(STATEMENTS))
        if message in STATEMENTS[:2]:
            body["location"] = draw(st.sampled_from(["/z1", "/z2"]))
        if message == "NodeRegistered" and draw(st.booleans()):
            body["replaces"] = draw(st.sampled_from("ab"))
        elif message == "NodeHeartbeat" and draw(st.sampled_from([False] * 5 + [True])):
            body["stopping"] = True
        records.append(raw(message, node_id, body, offset, at))
        said.append(records[-1])
    return records
