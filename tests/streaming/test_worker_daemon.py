"""The daemon of Python workers takes PySpark from where it is installed."""

from pathlib import Path

from streaming.worker_daemon import drop_archives


def installed(place: Path, *packages: str) -> str:
    for package in packages:
        (place / package).mkdir(parents=True)
        (place / package / "__init__.py").touch()
    return str(place)


def archives(spark_home: Path) -> list[str]:
    files = [spark_home / "python" / "lib" / "pyspark.zip", spark_home / "jars" / "spark-core.jar"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    return [str(file) for file in files]


def test_an_installed_pyspark_goes_before_the_archives_of_spark(tmp_path: Path) -> None:
    spark = archives(tmp_path / "spark")
    user = tmp_path / "mine.zip"
    user.touch()
    rest = [str(user), installed(tmp_path / "site", "pyspark", "py4j"), str(tmp_path / "spark")]
    assert drop_archives([*spark, *rest], str(tmp_path / "spark")) == rest


def test_the_archives_stay_where_they_alone_have_pyspark(tmp_path: Path) -> None:
    path = [*archives(tmp_path / "spark"), installed(tmp_path / "site", "pyspark")]
    assert drop_archives(path, str(tmp_path / "spark")) == path
