"""What differs on a cluster: settings by the master's kind, and refusals of what cannot serve."""

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.errors import SettingsInvalid
from streaming.settings import load_settings
from streaming.spark import cluster, start_session
from streaming.spark.session import local_options

MASTERS = {
    "local": False,
    "local[2]": False,
    "local[*,4]": False,
    "local-cluster[2,1,512]": True,
    "spark://h:7077": True,
    "yarn": True,
    "k8s://https://h": True,
}
JARS = [Path("/jars/hadoop-bare-naked-local-fs-1.jar")]


@pytest.mark.parametrize("master", MASTERS)
def test_the_master_says_whether_executors_are_elsewhere(master: str) -> None:
    assert cluster.is_cluster(master) == MASTERS[master]


def test_settings_of_one_machine_are_not_those_of_a_cluster() -> None:
    local = local_options(2, JARS, Path("/scratch"))
    assert local["spark.driver.bindAddress"] == local["spark.driver.host"] == "127.0.0.1"
    assert local["spark.hadoop.fs.file.impl"].endswith("BareLocalFileSystem")
    assert local["spark.driver.extraClassPath"] == str(JARS[0])
    shared = cluster.cluster_options("2")
    assert local.keys() & shared.keys() == {"spark.python.unix.domain.socket.dir"}


@pytest.mark.parametrize(
    ("options", "python"),
    [
        ({"spark.archives": "/e.tar.gz#environment"}, "./environment/bin/python"),
        ({"spark.archives": "hdfs:/a.zip,hdfs:/e.tgz#environment"}, "./environment/bin/python"),
        ({"spark.pyspark.python": "/opt/bin/python"}, "/opt/bin/python"),
        ({"spark.archives": "/e#environment", "spark.pyspark.python": "python3"}, "python3"),
    ],
)
def test_executors_have_the_python_of_the_archive_unless_another_is_named(
    options: dict[str, str], python: str
) -> None:
    assert cluster.find_executor_python({"spark.master": "yarn"} | options) == python


@pytest.mark.parametrize("archives", [{}, {"spark.archives": "/e.tar.gz#elsewhere"}])
def test_a_cluster_whose_executors_get_no_code_is_refused(
    tmp_path: Path, archives: dict[str, str]
) -> None:
    options = {"spark.master": "spark://h:7077"} | archives
    given = {"spark.options": options, "checkpoint": tmp_path.as_uri()}
    with pytest.raises(SettingsInvalid, match=r"spark://h:7077 is a cluster.*placer package"):
        start_session(load_settings(None, given))


def test_a_checkpoint_that_only_the_driver_has_is_refused(tmp_path: Path) -> None:
    options = {"spark.master": "yarn", "spark.archives": "/e.tar.gz#environment"}
    settings = load_settings(None, {"spark.options": options, "checkpoint": str(tmp_path)})
    with pytest.raises(SettingsInvalid, match=r"is a directory of this machine.*yarn"):
        start_session(settings)


def test_paths_stay_right_though_the_jvm_works_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "spark.archives": "e.tgz#environment,hdfs://n/a.zip#b,/x.zip",
        "spark.jars": "",
        "spark.app.name": "a,b",
    }
    assert cluster.resolve_paths(given) == {
        "spark.archives": f"{tmp_path}/e.tgz#environment,hdfs://n/a.zip#b,/x.zip",
        "spark.jars": "",
        "spark.app.name": "a,b",
    }


def test_the_path_of_the_executors_python_leads_to_ours_on_the_driver(tmp_path: Path) -> None:
    directory = cluster.make_working_directory(tmp_path, "./environment/bin/python")
    command = ["./environment/bin/python", "-c", "import sys; print(sys.executable)"]
    said = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout
    assert said.strip() == sys.executable
