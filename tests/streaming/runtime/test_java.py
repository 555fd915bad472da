"""Which Java is chosen, and that the bundled one serves Spark's way of starting it."""

import subprocess
from pathlib import Path

import pytest

from streaming.runtime import java
from streaming.runtime.java import JavaUnavailable


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start each test without any Java that could be found, and with a cache of its own."""
    for name in ("PLACER_JAVA_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PLACER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def make_home(home: Path, version: str, *, release_file: bool = True) -> Path:
    """Make a Java home whose `java` reports a version as the real one does."""
    (home / "bin").mkdir(parents=True)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    executable = home / "bin" / "java"
    executable.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.version = {version}" >&2\n'
    )
    executable.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "release"), [("17", 17), ("17.0.15", 17), ("21.0.4+7", 21), ("25-ea", 25)]
)
@pytest.mark.parametrize("release_file", [True, False])
def test_java_home_that_serves_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, release: int, release_file: bool
) -> None:
    home = make_home(tmp_path / "jdk", version, release_file=release_file)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find_java()
    assert found == java.Java(home, home / "bin" / "java", release)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_old_java_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    old = make_home(tmp_path / "old", version)
    new = make_home(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}")
    assert java.find_java().home == new


def test_java_on_path_may_be_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_home(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java().home == home


def test_launcher_of_a_version_switcher_is_asked_for_its_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_home(tmp_path / "jdk", "17.0.1")
    shims = tmp_path / "switcher" / "shims"
    shims.mkdir(parents=True)
    (shims / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (shims / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    assert java.find_java().executable == home / "bin" / "java"


def test_demanded_java_comes_first_and_must_serve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    demanded = make_home(tmp_path / "demanded", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "other", "17.0.1")))
    monkeypatch.setenv("PLACER_JAVA_HOME", str(demanded))
    assert java.find_java().home == demanded

    for wrong in (tmp_path / "missing", make_home(tmp_path / "old", "11.0.1")):
        monkeypatch.setenv("PLACER_JAVA_HOME", str(wrong))
        with pytest.raises(JavaUnavailable, match=str(wrong)):
            java.find_java()


def test_without_any_java_the_bundled_one_serves_kafka_and_spark() -> None:
    found = java.find_java()
    assert found.bundled
    assert found.version >= java.MIN_VERSION
    vector = "--add-modules=jdk.incubator.vector"

    def ends_well(executable: Path, *options: str) -> bool:
        command = [executable, *options, "-version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert ends_well(found.executable)
    # The reason for the wrapper; when this fails the wrapper can go.
    assert not ends_well(found.executable, vector)
    assert ends_well(found.home / "bin" / "java", "-Da=b c", vector, "-Dd='e'")


def test_wrapper_is_made_once_and_passes_every_argument_on() -> None:
    first = java.find_java()
    wrapper = first.home / "bin" / "java"
    inode = wrapper.stat().st_ino
    assert java.find_java() == first
    assert wrapper.stat().st_ino == inode
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]
    shown = subprocess.run(
        [wrapper, "-Dx=two words", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "x = two words" in shown
