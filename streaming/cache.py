"""Where files that only speed things up live: the user's cache, shared by all checkouts.

Used by the jars and by the Java home made for Spark; removing it costs one download.
"""

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return the cache directory (not created): `PLACER_CACHE_DIR`, else the system's own place."""
    chosen = os.environ.get("PLACER_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("placement-reconciler", appauthor=False)
