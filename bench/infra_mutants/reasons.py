"""Why a mistake that nothing finds is harmless, by the place in the manifests that it changes."""

from __future__ import annotations

import re

from bench.infra_mutants.trying import Tried

REASONS: tuple[tuple[str, str], ...] = ()


def reason_for(tried: Tried) -> str:
    """The reasons for all places that a survivor changes; empty where one of them has none."""
    found = {next((why for place, why in REASONS if re.search(place, path)), "") for path in tried.changed}
    return "" if "" in found else "; ".join(sorted(found))
