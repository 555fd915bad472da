"""Provides what runs beneath and beside the application on one machine.

Java, the jars pinned in `jars.lock`, directories, an embedded broker, and the application itself
as a child process. `python -m streaming.runtime` fetches the jars ahead of time, before anything
but this sub-package and `streaming.errors` is there: it imports nothing else of ours.
"""

from streaming.runtime.application import Application
from streaming.runtime.broker import EmbeddedBroker
from streaming.runtime.directories import Scratch, cache_dir
from streaming.runtime.jars import JarSet, JarsUnavailable, ensure_jars, has_jars
from streaming.runtime.java import Java, JavaUnavailable, find_java

__all__ = [
    "Application",
    "EmbeddedBroker",
    "JarSet",
    "JarsUnavailable",
    "Java",
    "JavaUnavailable",
    "Scratch",
    "cache_dir",
    "ensure_jars",
    "find_java",
    "has_jars",
]
