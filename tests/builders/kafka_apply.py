"""`placer kafka apply` on a cluster in memory: from an import over a saved plan to the command."""

from pathlib import Path
from typing import Self

from typer.testing import CliRunner, Result

from streaming.cli.main import app
from streaming.kafka_bridge.admin_client import PartitionId, Reassignment
from streaming.kafka_bridge.importer import ImportOptions, import_cluster
from streaming.kafka_bridge.observer import Observer
from streaming.offline import cluster_text
from tests.builders.kafka_cluster import SimulatedKafka


class ConnectedKafka(SimulatedKafka):
    """Is what the command connects to; each look completes a copy."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It has no connection to close."""

    def list_reassignments(self) -> dict[PartitionId, Reassignment]:
        """See ClusterAdmin."""
        found = super().list_reassignments()
        self.copy(1)
        return found

    def lists(self) -> dict[str, list[tuple[int, ...]]]:
        """The lists of every topic; a reassignment that runs is an error."""
        assert super().list_reassignments() == {}
        return {name: [p.listed for p in topic.partitions] for name, topic in self.topics.items()}


class ApplyBench:
    """The cluster, a plan for it in a file, and the command."""

    def __init__(self, kafka: ConnectedKafka, directory: Path) -> None:
        self.kafka, self.plan = kafka, directory / "plan.json"
        self.journal = directory / "plan.json.journal"
        self._file = directory / "cluster.yaml"

    def save_plan(self, *options: str, dead: bool = False) -> None:
        """Import the cluster, and plan with these options."""
        seen = Observer(self.kafka).look(0)
        body = import_cluster(seen, ImportOptions(fenced_is_dead=dead)).body
        self._file.write_text(cluster_text(body))
        words = [str(self._file), "--until-balanced", "--save", str(self.plan), *options]
        result = CliRunner().invoke(app, ["plan", *words])
        assert result.exit_code == 0, result.output

    def apply(self, *options: str) -> Result:
        """Run the command."""
        words = ["kafka", "apply", str(self.plan), "--bootstrap", "127.0.0.1:9092", *options]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
