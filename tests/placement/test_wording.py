"""Amounts for people: one unit each, in powers of 1,000."""

import pytest

from placement.wording import format_amount, format_bytes, format_crossing, format_share


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1_536_000, "1.5 MB"),
        (380 * 10**9, "380.0 GB"),
        (1_200_000_000_000, "1.2 TB"),
        (10**22, "10,000.0 EB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("disk_bytes", "2.5 MB"),
        ("write_bytes_per_second", "2.5 MB/s"),
        ("requests_per_second", "2,500,000"),
        ("bytesize", "2,500,000"),
    ],
)
def test_the_name_of_a_resource_ends_with_its_unit(resource: str, text: str) -> None:
    assert format_amount(2_500_000, resource) == text
    assert format_share(2_500_000, resource) == f"{text} of {resource}"


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("rack", "2 of them from another rack"),
        ("1", "2 of them from another domain of level 1"),
    ],
)
def test_a_level_without_a_name_is_called_by_its_depth(level: str, text: str) -> None:
    assert format_crossing(2, level) == text
