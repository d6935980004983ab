"""The matrix of access, whole: every service × route × kind of caller, asked of the real applications."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from ratchet.http.access.matrix import EVERY, FILE, AccessRule, Matrix, matrix_of
from ratchet.http.access.roles import Role
from ratchet.http.server.application import application, routes_of
from ratchet.service.errors import SettingsError
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import NAMES, service_of, settings_of

CALLERS = ("no token", "a bad token", *Role)
CLOSED = "closed for the test"


@pytest.fixture(scope="module")
def mint(tmp_path_factory: pytest.TempPathFactory) -> Mint:
    return Mint(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def application_of(mint: Mint, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FastAPI]:
    """Real ones, that do nothing for whom they let in: they are not at work."""

    @cache
    def made(name: str) -> FastAPI:
        settings = settings_of(name, tmp_path_factory.mktemp(name), api_public_keys=mint.keys.jwks)
        service = service_of(settings)
        return application(name, service.routers(), settings, service.trouble, lambda: CLOSED)

    return made


ROWS = [(name, row) for name in NAMES for row in matrix_of(name).rows]


def expected(row: AccessRule, caller: str) -> int | None:
    """None: anything but 401 and 403."""
    if row.roles is None:
        return None
    if caller not in list(Role):
        return 401
    return None if Role(caller) in row.roles else 403


@pytest.fixture(scope="module")
def tokens(mint: Mint) -> dict[str, dict[str, str]]:
    return {role: bearer(mint.good(role)) for role in Role} | {"a bad token": bearer("not.a.token"), "no token": {}}


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{name} {row.route}" for name, row in ROWS])
async def test_a_route_lets_in_whom_the_matrix_names_and_nobody_else(
    name: str, row: AccessRule, application_of: Callable[[str], FastAPI], tokens: dict[str, dict[str, str]]
) -> None:
    path = row.path.replace("{path:path}", "none").replace("{", "").replace("}", "")
    transport = httpx.ASGITransport(application_of(name))

    async with httpx.AsyncClient(transport=transport, base_url="http://fleet.example") as client:
        answers = {caller: await client.request(row.method, path, headers=tokens[caller]) for caller in CALLERS}

    for caller, answer in answers.items():
        if (status := expected(row, caller)) is not None:
            assert answer.status_code == status, caller
            assert answer.headers["content-type"] == "application/problem+json"
            assert ("www-authenticate" in answer.headers) == (status == 401)
        elif row.path.startswith("/v1/"):
            assert (answer.status_code, answer.json()["detail"]) == (503, CLOSED), caller
        else:
            assert answer.status_code not in (401, 403), caller


@pytest.mark.parametrize("name", NAMES)
def test_every_route_is_in_the_matrix_and_every_row_is_a_route(
    name: str, application_of: Callable[[str], FastAPI]
) -> None:
    routes = set(routes_of(application_of(name)))
    rows = {row.route for row in matrix_of(name).rows if row.path != "/mcp"}

    assert routes == rows


def test_what_the_matrix_says_is_changed_or_worked_on_are_rows_of_it() -> None:
    table = tomllib.loads(FILE.read_text())

    for kind in ("change", "work"):
        for service, routes in table[kind].items():
            assert set(routes) <= set(table[service])
    assert set(table) == {EVERY, "change", "work", *NAMES}


def test_what_changes_the_fleet_is_for_operators_alone_and_reading_alone_for_viewers() -> None:
    for name in NAMES:
        for row in matrix_of(name).rows:
            if row.effect == "change":
                assert row.roles == {Role.OPERATOR}
            if row.roles is not None and Role.VIEWER in row.roles:
                assert row.effect == "none"
                assert row.method == "GET" or row.path == "/mcp"


def test_a_service_with_a_route_that_nobody_was_named_for_does_not_start(tmp_path: Path) -> None:
    router = APIRouter()
    router.add_api_route("/v1/secret", lambda: None, methods=["GET"])

    with pytest.raises(SettingsError, match=r"GET /v1/secret.*\[agent\]"):
        application("agent", [router], settings_of("agent", tmp_path), lambda: None)


async def test_what_no_row_is_about_is_reached_by_nobody(application_of: Callable[[str], FastAPI], mint: Mint) -> None:
    transport = httpx.ASGITransport(application_of("agent"))

    async with httpx.AsyncClient(transport=transport, base_url="http://fleet.example") as client:
        operator = bearer(mint.good(Role.OPERATOR))
        unknown = await client.get("/v1/nothing", headers=operator)
        wrong = await client.delete("/v1/generate", headers=operator)
        stranger = await client.get("/v1/nothing")

    assert (unknown.status_code, wrong.status_code, stranger.status_code) == (404, 405, 401)
    assert wrong.headers["allow"] == "POST"


def test_a_path_without_variables_goes_before_one_with() -> None:
    table = {EVERY: {}, "shop": {"GET /v1/{any}": ["operator"], "GET /v1/open": "anyone"}, "change": {}, "work": {}}

    assert Matrix("shop", table).find("GET", "/v1/open").roles is None  # type: ignore[union-attr]
    assert Matrix("shop", table).find("GET", "/v1/other").roles == {Role.OPERATOR}  # type: ignore[union-attr]
