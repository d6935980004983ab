"""The scorer's route: the strategy's scores, and its failures as nulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from ratchet.bus.topology import REWARDS, fleet_topology
from ratchet.http.server.application import application
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.worker import ScorerWorker
from tests.memory_bus import MemoryBus
from tests.services.scorer.scripted import OK, Scripted


async def scored(folder: Path, scorer: str, body: dict[str, Any]) -> tuple[httpx.Response, MemoryBus]:
    settings = ScorerSettings(scorer=scorer, logs_dir=folder)
    bus = MemoryBus(fleet_topology(("small",)))
    worker = ScorerWorker(settings, bus, build_strategy(settings))
    app = application("scorer", worker.routers(), settings, worker.trouble)
    await worker.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.post("/v1/score", json=body)
    await worker.stop()
    return answer, bus


async def test_every_answer_has_its_score_and_nothing_is_published(tmp_path: Path) -> None:
    body = {"input": "sort: dbca", "responses": ["abcd", "dcba", " ABCD "], "reference": "abcd"}

    answer, bus = await scored(tmp_path, "verifier:normalised", body)

    assert answer.status_code == 200
    assert [one["score"] for one in answer.json()["scores"]] == [1.0, 0.0, 1.0]
    assert answer.json()["scorer"]["id"] == "verifier:normalised"
    assert bus.deliveries_published(REWARDS) == []


async def test_what_can_t_be_scored_is_null_and_not_zero(tmp_path: Path) -> None:
    answer, _ = await scored(tmp_path, "verifier:exact", {"input": "x", "responses": ["a"]})

    assert [(one["score"], one["status"]) for one in answer.json()["scores"]] == [(None, "unscorable")]


async def test_a_scorer_that_fails_says_so_in_the_reason(tmp_path: Path) -> None:
    answer, _ = await scored(
        tmp_path, "python:tests.services.scorer.functions:raises", {"input": "x", "responses": ["a", "b"]}
    )

    assert answer.status_code == 200
    assert [one["score"] for one in answer.json()["scores"]] == [None, None]
    assert all(one["reason"] for one in answer.json()["scores"])


async def test_there_are_one_to_sixty_four_answers(tmp_path: Path) -> None:
    for count, status in ((0, 422), (1, 200), (64, 200), (65, 422)):
        body = {"input": "x", "responses": ["a"] * count, "reference": "a"}
        answer, _ = await scored(tmp_path, "verifier:exact", body)
        assert answer.status_code == status


async def test_what_answers_left_in_a_workspace_is_scored_with_them(tmp_path: Path) -> None:
    body: dict[str, Any] = {"input": "x", "responses": ["a", "b"], "workspace": {"files": {"one": "1"}}}
    strategy = Scripted([OK, OK])
    settings = ScorerSettings(logs_dir=tmp_path)
    worker = ScorerWorker(settings, MemoryBus(fleet_topology(("small",))), strategy)
    app = application("scorer", worker.routers(), settings, worker.trouble)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.post("/v1/score", json=body | {"artifacts": [{"patch": "+1"}, None]})
        refused = await client.post("/v1/score", json=body | {"artifacts": [None]})

    (request,) = strategy.requests
    assert [one.artifact and one.artifact.patch for one in request.answers] == ["+1", None]
    assert request.workspace is not None and request.workspace.files == {"one": "1"}
    assert (answer.status_code, refused.status_code) == (200, 422)


async def test_what_answers_took_is_a_part_of_their_score(tmp_path: Path) -> None:
    body: dict[str, Any] = {"input": "x", "responses": ["a", "a", "b"], "reference": "a"}
    spec = "0.5*verifier:exact + 0.5*tokens:10"

    told, _ = await scored(tmp_path, spec, body | {"usages": [{"sampled_tokens": 10}, None, {"sampled_tokens": 0}]})
    unsaid, _ = await scored(tmp_path, spec, body)
    refused, _ = await scored(tmp_path, spec, body | {"usages": [None]})

    assert [one["score"] for one in told.json()["scores"]] == [0.75, None, 0.0]
    assert {one["status"] for one in unsaid.json()["scores"]} == {"unscorable"}
    assert refused.status_code == 422
