"""Failures of the surroundings that a person can act on: each a clear message and an exit code.

The command line prints the message of a `StreamingError` without a traceback and ends with its
`exit_code`; every other exception is a bug and keeps its traceback.
"""


class StreamingError(Exception):
    """An expected failure; `str(error)` says what is wrong and what to do about it."""

    exit_code = 3


class BrokerUnreachable(StreamingError):
    """No broker answered at the bootstrap address within the time allowed."""


class AccessRefused(StreamingError):
    """The brokers do not let this user in, or do not let it do what was asked."""


class ConnectionUntrusted(StreamingError):
    """No connection comes about because one side's certificate does not serve, or is missing."""


class SettingsInvalid(StreamingError):
    """The settings cannot be used; `problems` holds one line per mistake."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
