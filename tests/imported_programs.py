"""Import what our programs import, in the process that `tests/programs.py` forks; import it nowhere else."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from pathlib import Path

import services
import services.cli

sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (a terminal seen here would colour what forks print)
os.environ["COLUMNS"] = "200"
for found in pkgutil.walk_packages(services.cli.__path__, "services.cli."):
    importlib.import_module(found.name)
for found in pkgutil.iter_modules(services.__path__, "services."):
    importlib.import_module(f"{found.name}.__main__")
gc.freeze()
