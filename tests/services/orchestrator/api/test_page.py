from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from hashlib import sha256

import httpx
import pytest
from fastapi import FastAPI

from ratchet.http.server.application import application
from ratchet.page import STATIC as FOLDER
from ratchet.service.settings import FleetSettings
from services.orchestrator.api.page import INDEX, Page, page_router

VENDOR = FOLDER / "vendor"
OURS = [path for path in FOLDER.rglob("*.js") if VENDOR not in path.parents]
PUBLISHED_HOOKS = "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app: FastAPI = application("orchestrator", [page_router()], FleetSettings.read(), lambda: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client


async def test_the_page_is_served_with_a_strict_policy(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


async def test_nothing_in_the_markup_is_a_script_a_style_or_from_elsewhere() -> None:
    markup = Page.read().files[INDEX].plain.decode()

    assert re.findall(r"<script(?![^>]*\bsrc=)", markup) == []
    assert re.findall(r"<style|\bstyle=|\bon\w+=", markup) == []
    assert re.findall(r"(?:src|href)=\"(?!page/[0-9a-f]{16}/)", markup) == []


async def test_every_file_the_page_names_is_there_and_may_be_kept_for_good(client: httpx.AsyncClient) -> None:
    markup = (await client.get("/")).text

    named = re.findall(r"(?:src|href)=\"([^\"]+)\"", markup)
    answers = [await client.get(f"/{path}") for path in named]

    assert len(named) > 5
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["cache-control"] for answer in answers} == {"public, max-age=31536000, immutable"}
    assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}


@pytest.mark.parametrize("path", ["page/0000000000000000/start.js", "page/{digest}/no.js", "page/{digest}/../page.py"])
async def test_what_the_page_does_not_have_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get("/" + path.format(digest=Page.read().digest))

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_who_takes_it_compressed_gets_it_so(client: httpx.AsyncClient) -> None:
    path = f"/page/{Page.read().digest}/vendor/uplot.mjs"

    plain = await client.get(path, headers={"accept-encoding": "identity"})
    zipped = await client.get(path, headers={"accept-encoding": "gzip"})

    assert plain.content == zipped.content == (VENDOR / "uplot.mjs").read_bytes()
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.headers["vary"] == "Accept-Encoding"


def test_the_digest_is_that_of_all_files() -> None:
    page = Page.read()

    assert page.digest == Page.read().digest
    assert page.digest.encode() in page.files[INDEX].plain
    assert gzip.decompress(page.files[INDEX].gzip_bytes) == page.files[INDEX].plain


def test_the_vendored_files_are_those_that_were_published() -> None:
    lines = re.findall(r"^    ([0-9a-f]{64})  (\S+\.(?:mjs|css))$", (VENDOR / "README.md").read_text(), re.MULTILINE)

    sums = {name: sha256((VENDOR / name).read_bytes()).hexdigest() for _, name in lines}

    assert {name: digest for digest, name in lines} == sums
    assert set(sums) == {path.name for path in VENDOR.iterdir() if path.suffix in (".mjs", ".css")}
    hooks = (VENDOR / "hooks.mjs").read_bytes().replace(b'from"./preact.mjs"', b'from"preact"')
    assert sha256(hooks).hexdigest() == PUBLISHED_HOOKS


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_module_says_what_it_does_and_imports_only_files_that_are_there(path: str) -> None:
    module = FOLDER / path
    text = module.read_text()

    assert text.startswith("// "), "its first line says what it does"
    for imported in re.findall(r"""^import [^;]*?["']([^"']+)["'];$""", text, re.MULTILINE | re.DOTALL):
        assert (module.parent / imported).is_file(), imported
    assert not re.search(r"innerHTML|dangerouslySet|\beval\(|https?://", text)
    assert [line for line in text.splitlines() if len(line) > 120] == []
