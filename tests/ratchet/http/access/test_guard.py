"""The guard without tokens: on this machine only, and not for the pages of other sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.http.access.guard import token_check
from ratchet.http.access.roles import Role
from ratchet.http.server.application import application
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import service_of, settings_of


async def get_adapters(
    settings: FleetSettings, headers: dict[str, str], base_url: str = "http://localhost:8710"
) -> Any:
    service = service_of(settings)
    app = application("agent", service.routers(), settings, service.trouble)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url) as client:
        return await client.get("/v1/adapters", headers=headers)


HERE = ("localhost", "localhost:8710", "127.0.0.1:1", "[::1]:8710", "LOCALHOST")
REBOUND = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "@")
PAGES_HERE = ("http://localhost:8710", "http://127.0.0.1:3000")
FOREIGN_PAGES = ("https://evil.example", "null", "http://localhost.evil.example", "http://[", "")


async def test_programs_and_pages_of_this_machine_need_no_token_and_no_others_are_let_in(tmp_path: Path) -> None:
    """A name that was rebound to this machine is another's, and so is a page of another site."""
    settings = settings_of("agent", tmp_path)
    service = service_of(settings)
    app = application("agent", service.routers(), settings, service.trouble)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8710") as client:
        for name, values, status, kind in (
            ("host", HERE, 200, None),
            ("host", REBOUND, 403, "foreign-host"),
            ("origin", PAGES_HERE, 200, None),
            ("origin", FOREIGN_PAGES, 403, "origin"),
        ):
            for value in values:
                answer = await client.get("/v1/adapters", headers={name: value})
                assert (answer.status_code, answer.json().get("type")) == (status, kind), value


@pytest.mark.parametrize(
    ("path", "status"),
    [("/metrics", 403), ("/openapi.json", 403), ("/", 403), ("/healthz", 200)],
)
async def test_a_rebound_name_reaches_nothing_but_the_health_checks(tmp_path: Path, path: str, status: int) -> None:
    settings = settings_of("orchestrator", tmp_path)
    service = service_of(settings)
    app = application("orchestrator", service.routers(), settings, service.trouble)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        rebound = await client.get(path, headers={"host": "evil.example"})
        own = await client.get(path)

    assert (rebound.status_code, own.status_code) == (status, 200)


async def test_with_tokens_a_page_may_call_its_own_host_and_those_named(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    settings = settings_of("agent", tmp_path, api_public_keys=mint.keys.jwks, api_hosts="board.example")
    token = bearer(mint.good(Role.VIEWER))

    statuses = {
        origin: (await get_adapters(settings, token | {"origin": origin}, "https://fleet.example")).status_code
        for origin in ("https://fleet.example", "https://board.example", "https://evil.example")
    }

    assert list(statuses.values()) == [200, 200, 403]


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": ""},
        {"cookie": "token=x"},
    ],
    ids=str,
)
async def test_a_token_comes_in_one_way_only(tmp_path: Path, headers: dict[str, str]) -> None:
    mint = Mint(tmp_path / "keys")

    answer = await get_adapters(settings_of("agent", tmp_path, api_public_keys=mint.keys.jwks), headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer realm="ratchet"')


async def test_a_token_counts_where_anthropics_clients_put_a_key(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    settings = settings_of("agent", tmp_path, api_public_keys=mint.keys.jwks)
    service = service_of(settings)
    app = application("agent", service.routers(), settings, service.trouble)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        keys = [mint.good(Role.VIEWER), "other"]
        answers = [await client.get("/v1/adapters", headers={"x-api-key": key}) for key in keys]

    assert [answer.status_code for answer in answers] == [200, 401]


async def test_two_authorization_headers_are_none(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    settings = settings_of("agent", tmp_path, api_public_keys=mint.keys.jwks)
    good = bearer(mint.good(Role.VIEWER))["Authorization"]
    service = service_of(settings)
    app = application("agent", service.routers(), settings, service.trouble)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.get("/v1/adapters", headers=[("authorization", good), ("authorization", "Bearer other")])

    assert answer.status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "fleet.example"])
def test_nothing_listens_beyond_loopback_without_keys(host: str) -> None:
    with pytest.raises(SettingsError, match="ratchet token keys"):
        token_check(FleetSettings(http_host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_loopback_none_are_needed(host: str) -> None:
    assert token_check(FleetSettings(http_host=host)) is None
