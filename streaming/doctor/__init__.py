"""Checks the surroundings: machine, brokers and state, each finding with an action.

`placer doctor` shows them. Imports `administration`, `recovery`, `runtime`, `brokers`, `settings`,
`errors`.
"""

from streaming.doctor.doctor import apply_fixes, run_checks
from streaming.doctor.findings import DoctorResult

__all__ = ["DoctorResult", "apply_fixes", "run_checks"]
