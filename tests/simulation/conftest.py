"""Says how many seeds a test run has played."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up the `seeds` that tests recorded."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    properties = [pair for report in reports for pair in report.user_properties]
    seeds = sum(int(str(value)) for name, value in properties if name == "seeds")
    if seeds:
        terminalreporter.write_line(f"simulation: {seeds} seeds; make simulate plays thousands")
