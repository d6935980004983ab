"""Whose answers a run may learn from."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ratchet.service.errors import TrainingRefused
from schemas.records.registry import AdapterEntry, AgentAdapters
from services.trainer.run.choices import eligible_versions

AT = datetime(2031, 5, 1, tzinfo=UTC)


def entry(version: str, parent: str, state: str) -> AdapterEntry:
    return AdapterEntry.model_validate(
        {
            **{"version": version, "parent": parent, "state": state, "folder": f"small/{version}"},
            **{"sha256": version[-1] * 64, "since": AT},
        }
    )


AGENT = AgentAdapters(
    primary="v1.0.2",
    versions={
        "v1.0.0": AdapterEntry.model_validate({"version": "v1.0.0", "state": "archived"}),
        "v1.0.1": entry("v1.0.1", "v1.0.0", "archived"),
        "v1.0.2": entry("v1.0.2", "v1.0.0", "stable"),
        "v1.0.3": entry("v1.0.3", "v1.0.2", "rejected"),
        "v1.0.4": entry("v1.0.4", "v1.0.3", "rejected"),
    },
)


@pytest.mark.parametrize(
    ("parent", "behind", "candidates", "versions"),
    [
        ("v1.0.2", 0, False, {"v1.0.2"}),
        ("v1.0.2", 0, True, {"v1.0.2", "v1.0.3"}),
        ("v1.0.2", 1, False, {"v1.0.0", "v1.0.2"}),
        ("v1.0.2", 1, True, {"v1.0.0", "v1.0.1", "v1.0.2", "v1.0.3"}),
        ("v1.0.0", 9, True, {"v1.0.0", "v1.0.1", "v1.0.2"}),
    ],
)
def test_the_parent_those_behind_it_and_candidates_made_from_them(
    parent: str, behind: int, candidates: bool, versions: set[str]
) -> None:
    found = eligible_versions(AGENT, parent, behind, candidates=candidates)

    assert found.keys() == versions
    assert all(sha == AGENT.versions[version].sha256 for version, sha in found.items())


def test_a_parent_that_is_not_known_is_refused() -> None:
    with pytest.raises(TrainingRefused, match=r"no version v9\.0\.0"):
        eligible_versions(AGENT, "v9.0.0", 0)
