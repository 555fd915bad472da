"""Jars: pinned, verified before use, and a message that helps when they cannot be had.

No test needs a network: a directory stands for the download, a closed port for a lost network.
"""

import hashlib
import multiprocessing
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from streaming.runtime import jars
from streaming.runtime.jars import Jar, JarsUnavailable

CONTENT = {"org.example:one:1.0": b"first jar", "org.example.sub:two:2.0-beta": b"second jar"}


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of two jars and the directory that holds them; an empty cache."""
    rows = [
        {"coordinate": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in CONTENT.items()
    ]
    lock = tmp_path / "own.lock"
    lock.write_text(yaml.safe_dump({"connector": rows, "broker": rows[:1]}))
    directory = tmp_path / "offered"
    directory.mkdir()
    for name, data in CONTENT.items():
        _, artifact, revision = name.split(":")
        (directory / f"{artifact}-{revision}.jar").write_bytes(data)
    monkeypatch.setenv("PLACER_JARS_LOCK", str(lock))
    monkeypatch.setenv("PLACER_JARS_DIR", str(directory))
    monkeypatch.setenv("PLACER_CACHE_DIR", str(tmp_path / "cache"))
    return directory


def test_the_lock_of_this_version_is_whole() -> None:
    sets = jars.jar_lock()
    assert {name: len(rows) for name, rows in sets.items()} == {"connector": 5, "broker": 46}
    for row in (row for rows in sets.values() for row in rows):
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", row.coordinate)
        assert re.fullmatch(r"[0-9a-f]{64}", row.sha256)
        assert row.size_bytes > 1000
    for rows in sets.values():
        assert len({row.file_name for row in rows}) == len(rows)


def test_connector_is_that_of_the_installed_spark() -> None:
    from importlib.metadata import version

    coordinates = [row.coordinate for row in jars.jar_lock()["connector"]]
    assert coordinates[0] == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"


def test_jars_are_put_in_place_in_the_order_of_the_lock(offered: Path) -> None:
    files = jars.ensure_jars("connector")
    assert [file.read_bytes() for file in files] == list(CONTENT.values())
    assert [file.name for file in files] == ["one-1.0.jar", "two-2.0-beta.jar"]
    assert offered not in files[0].parents


def test_what_is_in_place_needs_no_source(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = jars.ensure_jars("connector")
    monkeypatch.setenv("PLACER_JARS_DIR", "/nonexistent")
    assert jars.ensure_jars("connector") == files


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damaged_cache_is_replaced(offered: Path, damage: str) -> None:
    files = jars.ensure_jars("connector")
    if damage == "truncated":
        files[1].write_bytes(b"half")
    else:
        files[1].unlink()
    assert [file.read_bytes() for file in jars.ensure_jars("connector")] == list(CONTENT.values())


def test_wrong_checksum_is_refused_and_nothing_put_in_place(offered: Path, tmp_path: Path) -> None:
    (offered / "two-2.0-beta.jar").write_bytes(b"SECOND jar")  # of the same size
    with pytest.raises(JarsUnavailable) as caught:
        jars.ensure_jars("connector")
    message = str(caught.value)
    assert "org.example.sub:two:2.0-beta" in message
    assert hashlib.sha256(b"SECOND jar").hexdigest() in message
    assert hashlib.sha256(b"second jar").hexdigest() in message
    assert [path.name for path in (tmp_path / "cache" / "jars").iterdir()] == [".lock"]

    (offered / "two-2.0-beta.jar").write_bytes(b"second jar")
    assert len(jars.ensure_jars("connector")) == 2


def test_incomplete_directory_names_what_is_missing(offered: Path) -> None:
    (offered / "one-1.0.jar").unlink()
    with pytest.raises(JarsUnavailable, match=r"lacks 1 of the 2 jars .*one-1\.0\.jar"):
        jars.ensure_jars("connector")


def test_another_lock_uses_other_files(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jars.ensure_jars("broker")
    lock = offered.parent / "newer.lock"
    data = b"a newer first jar"
    row = {"coordinate": "org.example:one:1.0", "size_bytes": len(data)}
    row["sha256"] = hashlib.sha256(data).hexdigest()
    lock.write_text(yaml.safe_dump({"connector": [], "broker": [row]}))
    (offered / "one-1.0.jar").write_bytes(data)
    monkeypatch.setenv("PLACER_JARS_LOCK", str(lock))
    after = jars.ensure_jars("broker")
    assert [file.read_bytes() for file in before + after] == [CONTENT["org.example:one:1.0"], data]


@pytest.mark.parametrize("text", ["", "connector: []", "connector: [{coordinate: x}]\nbroker: []"])
def test_unreadable_lock_is_an_expected_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    lock = tmp_path / "bad.lock"
    lock.write_text(text)
    monkeypatch.setenv("PLACER_JARS_LOCK", str(lock))
    with pytest.raises(JarsUnavailable, match=r"bad\.lock"):
        jars.ensure_jars("connector")


def test_processes_at_once_do_not_disturb_each_other(offered: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        answers = [pool.apply_async(jars.ensure_jars, ("connector",)) for _ in range(8)]
        found = {tuple(answer.get(60)) for answer in answers}
    assert found == {tuple(jars.ensure_jars("connector"))}


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads go to a port where nobody listens; nothing is in the cache."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers>'
        f'<ibiblio name="m" m2compatible="true" root="http://127.0.0.1:{closed_port()}/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv("PLACER_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("PLACER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PLACER_JARS_DIR", raising=False)


@pytest.mark.usefixtures("no_network")
def test_without_a_network_one_paragraph_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streaming.runtime"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    message = done.stderr.strip()
    assert "\n" not in message
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:" in message
    assert "Connection refused" in message
    for way_out in ("proxyHost", "PLACER_IVY_SETTINGS", "PLACER_JARS_DIR"):
        assert way_out in message


def test_download_through_a_mirror_is_verified(
    tmp_path: Path, offered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    for name, data in CONTENT.items():
        organisation, artifact, revision = name.split(":")
        place = mirror.joinpath(*organisation.split("."), artifact, revision)
        place.mkdir(parents=True)
        (place / f"{artifact}-{revision}.jar").write_bytes(data)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers>'
        f'<ibiblio name="m" m2compatible="true" usepoms="false" root="{mirror.as_uri()}/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.delenv("PLACER_JARS_DIR")
    monkeypatch.setenv("PLACER_IVY_SETTINGS", str(settings))
    assert [file.read_bytes() for file in jars.ensure_jars("connector")] == list(CONTENT.values())


def test_file_name_comes_from_name_and_revision() -> None:
    assert Jar("a.b:c_2.13:1-x", 1, "").file_name == "c_2.13-1-x.jar"
