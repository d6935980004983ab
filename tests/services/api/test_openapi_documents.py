"""The checked-in OpenAPI documents are those of the real services."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

import schemas
from services.api.application import application
from services.api.openapi_documents import openapi_documents
from tests.services.api.real_services import NAMES, service_of, settings_of

FOLDER = Path(schemas.__file__).parent


@pytest.mark.parametrize("name", NAMES)
def test_a_document_tells_every_route_of_the_real_service(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    service = service_of(settings)

    document = application(name, service.routers(), settings, service.trouble).openapi()

    assert json.loads((FOLDER / f"openapi/{name}.json").read_text()) == document, "type `ratchet schema`"


@pytest.mark.parametrize("text", openapi_documents().values(), ids=openapi_documents())
def test_every_call_says_who_may_make_it_and_how_it_can_end(text: str) -> None:
    for path, operations in json.loads(text)["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/"):
                assert {"401", "403", "429", "503"} <= set(operation["responses"])
                assert operation["security"] == [{"bearer": []}]
                assert operation["x-roles"]
                assert operation["description"]


async def test_whoever_asks_for_the_document_again_and_again_costs_little(tmp_path: Path) -> None:
    settings = settings_of("orchestrator", tmp_path)
    service = service_of(settings)
    app = application("orchestrator", service.routers(), settings, service.trouble)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        first = await client.get("/openapi.json")
        began = time.process_time()
        again = [await client.get("/openapi.json") for _ in range(50)]
        spent = time.process_time() - began

    assert first.json() == app.openapi()
    assert {answer.content for answer in again} == {first.content}
    assert spent / 50 < 0.004
