"""`suggest`: where a new stream would go beside what is there (KIP-879's placement suggestion).

Nothing is asked of the running reconciler: its published state is placed on as a cluster file is.
"""

from dataclasses import replace
from itertools import count
from typing import Any

from schemas.cluster import Cluster, ClusterStream
from streaming.offline import Document, Placed, placed


def suggested(cluster: Cluster, asked: dict[str, Any]) -> tuple[dict[str, Any], Placed]:
    """The answer for one more stream, in the form of `place`, and the whole it is part of.

    `asked`: fields of a stream without its name.
    """
    taken = {stream.stream for stream in cluster.streams}
    name = next(n for n in (f"suggestion-{i}" for i in count(1)) if n not in taken)
    stream = ClusterStream.model_validate({"stream": name, **asked})
    whole = placed(Document(replace(cluster, streams=(*cluster.streams, stream))))
    return whole.answer(whole.decisions[-1]), whole
