"""The commands of `placer`: one module per group, each with its options and its exit status.

A command imports what it runs on when it runs, so that `placer place` loads no Kafka client and no
Spark. Screens come from `streaming.cli.render`.
"""
