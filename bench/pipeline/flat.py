"""Does the orchestrator's cost grow with the tasks it has seen? Its memory and CPU per task at marks on the way."""

from __future__ import annotations

import argparse
from typing import Any


def flat(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    raise NotImplementedError
