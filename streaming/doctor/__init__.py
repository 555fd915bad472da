"""Checks the surroundings: machine, brokers and state, each finding with an action.

`placer doctor` shows them. Imports `administration`, `recovery`, `runtime`, `brokers`, `settings`,
`errors`.
"""

from streaming.doctor.doctor import examine, mend
from streaming.doctor.findings import Finding

__all__ = ["Finding", "examine", "mend"]
