"""Stands by behind the active reconciler of a cell, and takes over when it is gone.

`streaming.app` runs it before it decides. Imports `presence`, `outbox`, `recovery`, `brokers`,
`codec`, `errors`, `gc_pause`.
"""

from streaming.standby.standby import Standby, StandbyOptions, StandbyRefused

__all__ = ["Standby", "StandbyOptions", "StandbyRefused"]
