"""The checked-in OpenAPI documents are those of the real services."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import get_args

import httpx
import pytest

import schemas
from ratchet.http.server.application import application, query_parameters, routes_of
from ratchet.http.server.limits import TIMEOUT_HEADER
from schemas.api.events import EventKind
from services.orchestrator.api.events import DATA
from tests.ratchet.http.real_services import NAMES, rules_of, service_of, settings_of

FOLDER = Path(schemas.__file__).parent / "generated"
OF_OTHERS = {"/v1/messages", "/v1/responses", "/v1/manager/{path}"}
"""Whose shapes are their vendors', or the manager's: not in the document."""


@pytest.mark.parametrize("name", NAMES)
def test_a_document_tells_every_route_of_the_real_service(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    service = service_of(settings)

    document = application(name, service.routers(), settings, service.trouble).openapi()

    assert json.loads((FOLDER / f"openapi/{name}.json").read_text()) == document, "type `ratchet schema`"


@pytest.mark.parametrize("name", NAMES)
def test_every_call_says_who_may_make_it_and_how_it_can_end(name: str) -> None:
    for path, operations in json.loads((FOLDER / f"openapi/{name}.json").read_text())["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/"):
                assert {"401", "403", "429", "503"} <= set(operation["responses"])
                assert operation["security"] == [{"bearer": []}]
                assert operation["x-roles"]
                assert operation["description"]


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_that_a_route_takes_are_those_of_the_document(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    service = service_of(settings)

    routes = routes_of(application(name, service.routers(), settings, service.trouble))

    paths = json.loads((FOLDER / f"openapi/{name}.json").read_text())["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            told = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            assert query_parameters(routes[f"{method.upper()} {path}"]) == told


@pytest.mark.parametrize("name", NAMES)
def test_every_call_says_that_its_wait_can_be_bounded_and_a_change_says_nothing_of_it(name: str) -> None:
    paths = json.loads((FOLDER / f"openapi/{name}.json").read_text())["paths"]
    for row in rules_of(name):
        if row.path.startswith("/v1/") and row.path not in OF_OTHERS:
            operation = paths[row.path][row.method.lower()]
            headers = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
            is_bounded = not row.operation.effect.changes
            assert (TIMEOUT_HEADER in headers) == is_bounded
            assert ({"400", "504"} <= set(operation["responses"])) == is_bounded


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


def test_the_document_tells_every_kind_of_event_and_what_is_in_it() -> None:
    document = json.loads((FOLDER / "openapi/orchestrator.json").read_text())
    known = document["components"]["schemas"]
    stream = document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]

    events = [known[one["$ref"].rpartition("/")[2]]["properties"] for one in stream["anyOf"]]
    told = {event["event"]["const"]: event["data"]["contentSchema"]["$ref"].rpartition("/")[2] for event in events}

    assert told == {kind: model.__name__ for kind, model in DATA.items()}
    assert set(told) == set(get_args(EventKind))
    assert set(told.values()) <= set(known)
