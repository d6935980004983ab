"""A folder that every user may enter: a sandbox may have another user, and pytest's folders are closed to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def passable_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ratchet-tests-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
