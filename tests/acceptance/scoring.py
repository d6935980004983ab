"""A scorer for a fleet of echoes: a score depends on the adapter version that answered.

The table is the environment variable QUALITY: JSON, version → mean score.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping

NOISE = 0.1

_QUALITY: dict[str, float] = json.loads(os.environ.get("QUALITY", "{}"))
_SERVED_NAME = re.compile(r"\w+-(v\d+\.\d+\.\d+)-[0-9a-f]{8}: ")


def by_version(prompt: object, answer: str, reference: str | None, criteria: str | None) -> float:
    """Score an answer by the version that the echo engine names before it, with noise from the text."""
    match = _SERVED_NAME.match(answer)
    return _QUALITY[match.group(1) if match else "v1.0.0"] + NOISE * (zlib.crc32(answer.encode()) / 2**31 - 1.0)


def scored(quality: Mapping[str, float]) -> dict[str, str]:
    """Return the environment of a fleet whose versions have these mean scores."""
    return {"RATCHET_SCORER": "python:tests.acceptance.scoring:by_version", "QUALITY": json.dumps(quality)}
