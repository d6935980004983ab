"""The matrix of access, whole: every service × route × kind of caller, asked of the real applications."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from ratchet.http.access.matrix import AccessRule, matrix_of
from ratchet.http.access.roles import Role
from ratchet.http.operation import ANYONE, OPERATOR, Effect, operation
from ratchet.http.server.application import application
from ratchet.service.errors import SettingsError
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import NAMES, rules_of, service_of, settings_of

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


RULES = [(name, rule) for name in NAMES for rule in rules_of(name)]
"""What they say is held by tests/golden/access.txt."""


def expected(rule: AccessRule, caller: str) -> int | None:
    """None: anything but 401 and 403."""
    if rule.operation.roles is None:
        return None
    if caller not in list(Role):
        return 401
    return None if Role(caller) in rule.operation.roles else 403


@pytest.fixture(scope="module")
def tokens(mint: Mint) -> dict[str, dict[str, str]]:
    return {role: bearer(mint.good(role)) for role in Role} | {"a bad token": bearer("not.a.token"), "no token": {}}


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name} {rule.route}" for name, rule in RULES])
async def test_a_route_lets_in_whom_it_declares_and_nobody_else(
    name: str, rule: AccessRule, application_of: Callable[[str], FastAPI], tokens: dict[str, dict[str, str]]
) -> None:
    path = rule.path.replace("{path}", "none").replace("{", "").replace("}", "")
    transport = httpx.ASGITransport(application_of(name))

    async with httpx.AsyncClient(transport=transport, base_url="http://fleet.example") as client:
        answers = {caller: await client.request(rule.method, path, headers=tokens[caller]) for caller in CALLERS}

    for caller, answer in answers.items():
        if (status := expected(rule, caller)) is not None:
            assert answer.status_code == status, caller
            assert answer.headers["content-type"] == "application/problem+json"
            assert ("www-authenticate" in answer.headers) == (status == 401)
        elif rule.path.startswith("/v1/"):
            assert (answer.status_code, answer.json()["detail"]) == (503, CLOSED), caller
        else:
            assert answer.status_code not in (401, 403), caller


def test_what_changes_the_fleet_is_for_operators_alone_and_reading_alone_for_viewers() -> None:
    for _, rule in RULES:
        declared = rule.operation
        if declared.effect.changes:
            assert declared.roles is not None
            whole_fleet = declared.roles - declared.own_only - {Role.ADMIN}  # admins set quotas
            assert whole_fleet == {Role.OPERATOR}, "a submitter changes what is its own"
        if declared.roles is not None and Role.VIEWER in declared.roles:
            assert declared.effect is Effect.READS
            assert rule.method == "GET" or rule.path == "/mcp"


def test_a_service_with_a_route_that_nobody_was_named_for_does_not_start(tmp_path: Path) -> None:
    router = APIRouter()
    router.add_api_route("/v1/secret", lambda: None, methods=["GET"])

    with pytest.raises(SettingsError, match="agent has routes that nobody was named for: GET /v1/secret"):
        application("agent", [router], settings_of("agent", tmp_path), lambda: None)


async def test_what_is_no_route_is_reached_by_nobody(application_of: Callable[[str], FastAPI], mint: Mint) -> None:
    transport = httpx.ASGITransport(application_of("agent"))

    async with httpx.AsyncClient(transport=transport, base_url="http://fleet.example") as client:
        operator = bearer(mint.good(Role.OPERATOR))
        unknown = await client.get("/v1/nothing", headers=operator)
        wrong = await client.delete("/v1/generate", headers=operator)
        stranger = await client.get("/v1/nothing")

    assert (unknown.status_code, wrong.status_code, stranger.status_code) == (404, 405, 401)
    assert wrong.headers["allow"] == "POST"


def test_a_path_without_variables_goes_before_one_with() -> None:
    routes = [
        Route("/v1/{any}", operation(OPERATOR)(lambda _: None)),
        Route("/v1/open", operation(ANYONE)(lambda _: None)),
    ]
    matrix = matrix_of("shop", {f"GET {route.path}": route for route in routes})

    assert not matrix.find("GET", "/v1/open").operation.roles  # type: ignore[union-attr]
    assert matrix.find("GET", "/v1/other").operation.roles == {Role.OPERATOR}  # type: ignore[union-attr]
