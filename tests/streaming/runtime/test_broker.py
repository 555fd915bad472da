"""The embedded broker as its users meet it: real processes, real records, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from kafka.admin import KafkaAdminClient

from streaming.runtime import broker as broker_module
from streaming.runtime import broker_process
from streaming.runtime.broker import EmbeddedBroker
from streaming.runtime.broker_process import BrokerFailed


def create_topic(bootstrap_servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    finally:
        admin.close()


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    errors = []
    # The broker unpacks the native library that it checks such a batch with.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": "lz4"})
    producer.produce(topic, value, key=b"k", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def consume_one(bootstrap_servers: str, topic: str) -> bytes:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def test_records_go_through_and_nothing_is_left(prefix: str) -> None:
    with EmbeddedBroker() as broker:
        pid, directory = broker.pid, broker.data_dir
        assert pid is not None
        assert psutil.pid_exists(pid)
        create_topic(broker.bootstrap_servers, prefix + "a")
        produce(broker.bootstrap_servers, prefix + "a", b"hello" * 1_000)
        assert consume_one(broker.bootstrap_servers, prefix + "a") == b"hello" * 1_000
        # What its JVM unpacks would otherwise stay in the system's temporary directory.
        assert f"-Djava.io.tmpdir={directory}/tmp" in psutil.Process(pid).cmdline()
        assert [*(directory / "tmp").glob("liblz4-java-*.so")]
    assert not psutil.pid_exists(pid)
    assert not directory.exists()
    assert broker.pid is None


def test_kept_directory_keeps_records_and_is_formatted_once(tmp_path: Path) -> None:
    directory = tmp_path / "dir with spaces, comma = and ü"
    with EmbeddedBroker(data_dir=directory) as broker:
        create_topic(broker.bootstrap_servers, "kept")
        produce(broker.bootstrap_servers, "kept", b"from the first run")
    formatted = (directory / "data" / "meta.properties").read_text()

    with EmbeddedBroker(data_dir=directory) as broker:
        assert consume_one(broker.bootstrap_servers, "kept") == b"from the first run"
    assert (directory / "data" / "meta.properties").read_text() == formatted
    assert not (directory / "tmp").exists()


@pytest.mark.long
def test_directory_in_use_is_refused_and_its_owner_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "CLAIM_TIMEOUT_SECONDS", 0.2)
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        settings = (tmp_path / "server.properties").read_text()
        with pytest.raises(BrokerFailed, match="in use by another embedded broker"):
            EmbeddedBroker(data_dir=tmp_path).start()
        assert (tmp_path / "server.properties").read_text() == settings
        create_topic(broker.bootstrap_servers, "still-works")


def test_wanted_port_is_used_and_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"Port {port} on 127.0.0.1 is not free"):
            EmbeddedBroker(port=port, data_dir=tmp_path).start()
    broker = EmbeddedBroker(port=port, data_dir=tmp_path)
    for _ in range(2):  # stopped, it can be started again on the same port
        broker.start()
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        with pytest.raises(RuntimeError, match="started already"):
            broker.start()
        broker.stop()
        broker.stop()  # stopping what is stopped does nothing


@pytest.mark.long
def test_port_lost_before_the_broker_binds_it_costs_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free_ports = broker_module._ports
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        lost = taken.getsockname()[1]
        answers = iter([(lost, free_ports(None)[1])])
        monkeypatch.setattr(
            broker_module, "_ports", lambda wanted: next(answers, None) or free_ports(wanted)
        )
        with EmbeddedBroker() as broker:
            assert broker.bootstrap_servers != f"127.0.0.1:{lost}"


def test_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    bad = EmbeddedBroker(data_dir=tmp_path, properties={"num.partitions": "many"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        bad.start()
    assert bad.pid is None
    with EmbeddedBroker(data_dir=tmp_path) as mended:
        assert mended.pid is not None


def test_properties_override(tmp_path: Path) -> None:
    properties = {"num.partitions": "7", "auto.create.topics.enable": "true"}
    with EmbeddedBroker(data_dir=tmp_path, properties=properties) as broker:
        produce(broker.bootstrap_servers, "made-on-demand", b"x")
    assert len(list((tmp_path / "data").glob("made-on-demand-*"))) == 7


def test_unwritable_directory_is_an_expected_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFailed, match="cannot use"):
        EmbeddedBroker(data_dir=tmp_path / "file" / "below").start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_broker_dies_with_its_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from streaming.runtime.broker import EmbeddedBroker\n"
        "broker = EmbeddedBroker(data_dir=sys.argv[1]).start()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert os.getsid(child.pid) != os.getsid(parent.pid)  # Ctrl-C there is not for it
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    with EmbeddedBroker(data_dir=tmp_path) as broker:  # waits until the other one is gone
        assert broker.pid is not None
        assert not child.is_running()


@pytest.mark.long
def test_hanging_broker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_process, "STOP_TIMEOUT_SECONDS", 0.5)
    broker = EmbeddedBroker(data_dir=tmp_path).start()
    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # deaf to SIGTERM, as a hanging one
    started_seconds = time.monotonic()
    broker.stop()
    assert time.monotonic() - started_seconds >= 0.5
    assert not psutil.pid_exists(pid)


def test_silent_broker_runs_into_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_process, "START_TIMEOUT_SECONDS", 0.2)
    broker = EmbeddedBroker()
    with pytest.raises(BrokerFailed, match="did not answer within"):
        broker.start()
    assert broker.pid is None


def test_bootstrap_servers_before_start_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="not been started"):
        _ = EmbeddedBroker(port=9092).bootstrap_servers
