"""The checked-in documents are what the code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import schemas
from ratchet.bus.topology import fleet_topology
from services.cli.schema import documents, openapi_documents

FOLDER = Path(schemas.__file__).parent / "generated"
ON_DISK = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json"))


@pytest.fixture(scope="module")
def current() -> dict[str, str]:
    return documents() | openapi_documents()


@pytest.mark.parametrize("name", ON_DISK)
def test_a_document_is_current(name: str, current: dict[str, str]) -> None:
    assert (FOLDER / name).read_text() == current.get(name), "type `ratchet schema` and commit what it writes"


def test_none_is_missing_and_none_is_left_of_a_message_that_is_gone(current: dict[str, str]) -> None:
    assert set(ON_DISK) == set(current)


def test_the_asyncapi_document_names_every_queue_and_its_references_resolve() -> None:
    document = json.loads(documents()["asyncapi.json"])

    assert (
        set(document["channels"]) == fleet_topology(("small",), external_scorer=True, auditor=True, programs=True).names
    )
    for channel in document["channels"].values():
        for message in channel["messages"].values():
            assert message["$ref"].removeprefix("#/components/messages/") in document["components"]["messages"]
    for message in document["components"]["messages"].values():
        assert (FOLDER / message["payload"]["schema"]["$ref"]).exists()
