"""Hashes of messages' fields, by which a repeat is told from a conflict.

The reconciler publishes them as `body_hash`; a client computes the hash of its own request in the
same way, and knows by it whether a decision is on that request.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from schemas.inputs import StreamAltered, StreamCreated, StreamDropped


def hash_body(body: Mapping[str, Any]) -> str:
    """Hash a message's fields, whatever their order; 32 hexadecimal digits."""
    canonical = orjson.dumps(dict(body), option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=16).hexdigest()


def hash_request(message: StreamCreated | StreamAltered | StreamDropped) -> str:
    """Hash a message about a stream, as its decision has it.

    No alteration has the hash of a creation: what a stream was created with is no repeat.
    """
    fields = message.model_dump()
    for name in ("uid", "adopt", "expected_load"):
        if fields.get(name, "") is None:
            # As it was hashed before the field was there.
            del fields[name]
    if isinstance(message, StreamCreated):
        return hash_body(fields)
    return hash_body({"type": type(message).__name__, **fields})
