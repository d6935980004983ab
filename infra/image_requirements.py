"""Prints what an image needs, one requirement a line: `python infra/image_requirements.py orchestrator,EXTRA`.

Run by services/Dockerfile, so that the layer with the dependencies changes only when they do. Imports nothing of ours.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path


def requirements(pyproject: str, extras: Iterable[str]) -> list[str]:
    """List what the project and these extras require. Empty names are skipped; an unknown one raises KeyError."""
    project = tomllib.loads(pyproject)["project"]
    optional = project["optional-dependencies"]
    found = [*project["dependencies"], *(one for extra in extras if extra for one in optional[extra])]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(Path("pyproject.toml").read_text(), sys.argv[1].split(","))) + "\n")
