"""Of an agent with many versions only some are shown, and each is joined to its nearest ancestor among them."""

from __future__ import annotations

import pytest

from ratchet.adapters.agent_view import agent_view
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState, Registry

VERSIONS = [f"v1.0.{number}" for number in range(10)]


def registry(primary: str = "v1.0.0") -> Registry:
    """Ten versions, each grown from the one before it."""
    entries = {
        version: AdapterEntry(
            version=version,
            state=EntryState.STABLE if version == primary else EntryState.SUPERSEDED,
            folder=version,
            parent=parent,
        )
        for parent, version in zip([None, *VERSIONS], VERSIONS, strict=False)
    }
    return Registry(agents={"small": AgentAdapters(primary=primary, versions=entries)})


@pytest.mark.parametrize(
    ("most", "before", "shown", "older"),
    [
        (None, None, VERSIONS, 0),
        (3, None, ["v1.0.0", "v1.0.4", "v1.0.7", "v1.0.8", "v1.0.9"], 5),
        (3, 7, ["v1.0.5", "v1.0.6"], 3),
        (3, 4, ["v1.0.1", "v1.0.2", "v1.0.3"], 0),
        (3, 1, [], 0),
        (3, 0, [], 0),
        (50, None, VERSIONS, 0),
        (50, 99, ["v1.0.1", "v1.0.2", "v1.0.3", *VERSIONS[5:]], 0),
    ],
)
def test_those_in_use_come_with_the_newest_and_each_once(
    most: int | None, before: int | None, shown: list[str], older: int
) -> None:
    view = agent_view(registry("v1.0.4"), "small", most, before)

    assert [one.version for one in view.versions] == shown
    assert view.older == older


def test_who_has_no_parent_there_is_joined_to_the_next_of_kin() -> None:
    assert agent_view(registry("v1.0.4"), "small", 3).joins == {"v1.0.4": "v1.0.0", "v1.0.7": "v1.0.4"}
    assert agent_view(registry("v1.0.4"), "small").joins == {}
