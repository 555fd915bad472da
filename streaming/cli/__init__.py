"""The `placer` command: one module per group of commands.

Modules here import only typer and the standard library; Kafka, Spark and pydantic are imported
inside the commands that need them, so that `placer --help` answers at once.
"""
