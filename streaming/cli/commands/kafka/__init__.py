"""`placer kafka …`: a Kafka cluster as the system whose replicas are placed."""

from streaming.cli.commands.kafka import apply, bridge, import_
from streaming.cli.commands.kafka.group import app

__all__ = ["app", "apply", "bridge", "import_"]
