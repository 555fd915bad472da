"""Serves the web console: pages on NiceGUI beside the query API, on one port.

Imports `api`, `read_model`, `live`, `requests`, `offline` and what they stand on; only the command
line imports it, as NiceGUI is an extra that a reconciler does without.
"""

from streaming.console.application import make_console
from streaming.console.console import Console
from streaming.console.file_model import make_file_model
from streaming.console.input_lag import InputLag
from streaming.console.letters import KafkaLetters, Letters
from streaming.console.sessions import SessionAccess

__all__ = [
    "Console",
    "InputLag",
    "KafkaLetters",
    "Letters",
    "SessionAccess",
    "make_console",
    "make_file_model",
]
