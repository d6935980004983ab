"""What the API shows of a fleet that learns, and what an operator does with it: one loop, looked at from all sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from ratchet.adapters.decisions import DecisionLedger
from ratchet.bus.topology import topology_of
from ratchet.experiments.records import experiments
from ratchet.experiments.view import view_of
from ratchet.http.server.application import application
from schemas.api.experiments import ExperimentDetail
from schemas.messages.base import BaseModelIdentity
from schemas.messages.reward import ScorerIdentity
from schemas.records.registry import EntryState
from tests.ratchet.adapters.making_adapters import BASE
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import House, house
from tests.services.orchestrator.learning_house import LearningHouse, learning_house
from tests.serving import serving
from tests.waiting import settled, until

FAST: dict[str, Any] = {
    "experiment_min_units_per_arm": 5,
    "watch_share": 0.0,
    "anchor_every_s": 0,
}


async def test_a_canary_is_seen_live_and_looks_the_same_when_the_logs_are_replayed(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **FAST) as fleet, api_of(fleet) as api:
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        await fleet.traffic(most=200, stop_when=lambda: fleet.submitted >= 120)
        running = fleet.orchestrator.parts.promoters["small"].arms.experiment
        assert running is not None
        await until(lambda: not running.awaited_audits)

        (summary,) = (await got(api, "/v1/experiments"))["items"]
        live = ExperimentDetail.model_validate(await got(api, f"/v1/experiments/{summary['experiment_id']}"))
        (record,) = experiments(decision for decision, _ in DecisionLedger(tmp_path / "adapters").read())
        replayed = view_of(record, tmp_path)

        assert (summary["outcome"], summary["kind"], summary["treatment"]) == ("running", "canary", version)
        assert live.decision is not None
        assert live.decision.verdict == "continue"
        assert live.decision == replayed.decision
        assert live.history == list(replayed.history)
        assert live.history[-1].band == live.decision.band

        status = await got(api, "/v1/status")
        (agent, _) = status["agents"]
        assert (agent["candidate"], agent["experiment_id"]) == (version, summary["experiment_id"])
        assert agent["units"] >= live.decision.evidence.units
        assert (agent["replicas"][0]["replica"], agent["replicas"][0]["loaded"]) == ("replica-1", [version])
        assert status["tasks"]["answered"] >= fleet.submitted
        assert {score["adapter_version"] for score in status["scores"]} >= {"v1.0.0", version}


async def test_a_candidate_that_could_not_be_validated_is_told_of_with_its_reason_and_leaves_users_alone(
    tmp_path: Path,
) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **FAST) as fleet, api_of(fleet) as api:
        # given users' first tasks, which the scorer scores no longer
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 20)
        fleet.scores_validations = False
        version = await fleet.trained()
        (agent, _) = (await got(api, "/v1/status"))["agents"]
        while not agent["held_up"]:
            await fleet.report()
            await settled()
            (agent, _) = (await got(api, "/v1/status"))["agents"]

        # then it is said, wherever one looks, and the gate asks nothing more meanwhile
        asked = len(fleet.bus.deliveries_published("work.small"))
        why = "could not be validated: its answers are worse than those that the primary had in the log"
        (held,) = agent["held_up"]
        assert (held["name"], held["tries"]) == (version, 1)
        assert datetime.fromisoformat(held["again_at"]) > datetime.now(UTC)
        for at in (f"/v1/adapters/small/{version}", "/v1/adapters", "/v1/adapters/small"):
            assert why in str(await got(api, at))
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 40)
        assert len(fleet.bus.deliveries_published("work.small")) == asked + 20


async def test_a_judge_that_nobody_audits_is_said_on_the_status_and_at_the_promotion(tmp_path: Path) -> None:
    knobs = FAST
    async with learning_house(tmp_path, {"v1.0.0": 0.4, "v1.0.1": 0.9}, **knobs) as fleet, api_of(fleet) as api:
        # given a fleet whose scores are a model's
        fleet.scorer = ScorerIdentity(id="0.7*verifier:exact + 0.3*judge:absolute", revision="1")
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 20)
        version = await fleet.trained()

        # when a version is promoted by them
        await fleet.reach(version, "canary")
        await fleet.traffic(stop_when=lambda: fleet.adapters.primary == version)

        # then both say what would not be noticed, and what to set
        promotion = next(d for d, _ in fleet.store.ledger.read() if d.move.kind == "promote")
        agent, other = (await got(api, "/v1/status"))["agents"]
        assert promotion.reason.endswith(agent["unaudited"])
        assert "set RATCHET_AUDITOR" in agent["unaudited"]
        assert other["unaudited"] is None


async def test_what_was_trained_on_another_model_waits_until_the_agent_runs_it(tmp_path: Path) -> None:
    knobs = FAST | {"train_after_groups": 30}
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **knobs) as fleet, api_of(fleet) as api:
        # given an agent that plays a script
        fleet.base = BaseModelIdentity(name="scripted")
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 20)
        version = await fleet.trained()
        (agent, _) = (await got(api, "/v1/status"))["agents"]
        while not agent["held_up"]:
            await settled()
            (agent, _) = (await got(api, "/v1/status"))["agents"]

        # then nothing is asked of the candidate, and why is said
        detail = await got(api, f"/v1/adapters/small/{version}")
        assert detail["state"] == "trained"
        assert detail["sentence"].startswith("v1.0.1 is not tried: it was trained on")
        assert len(fleet.bus.deliveries_published("work.small")) == 20

        # and what the fleet learns meanwhile is trained
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 40)
        await until(lambda: bool(fleet.bus.deliveries_published("training")))

        # when the agent runs its model again, then it goes its way
        fleet.base = BASE
        await fleet.reach(version, "canary")
        (agent, _) = (await got(api, "/v1/status"))["agents"]
        assert agent["held_up"] == []


async def test_an_operator_promotes_rolls_back_and_freezes_under_his_name_and_is_told_why_not(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **FAST) as fleet, api_of(fleet) as api:
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        at = "/v1/adapters/small"

        unclear = await api.post(f"{at}/rollback", json={"reason": "which?"})
        promoted = await api.post(f"{at}/promote", json={"version": version, "reason": "a person knows better"})
        again = await api.post(f"{at}/promote", json={"version": version, "reason": "again"})
        frozen = await api.post(f"{at}/freeze", json={"reason": "audit"})
        back = await api.post(f"{at}/rollback", json={"reason": "worse after all"})

        assert (unclear.status_code, unclear.json()["type"]) == (409, "ambiguous")
        assert (promoted.status_code, promoted.json()["primary"]) == (200, version)
        assert (again.status_code, "the primary already" in again.json()["detail"]) == (409, True)
        assert frozen.json()["frozen"]["who"] == "operator:local"
        assert (back.status_code, back.json()["primary"]) == (200, "v1.0.0")
        for body in ({"version": version}, {"version": version, "reason": " "}, {"version": "1.0", "reason": "x"}):
            assert (await api.post(f"{at}/promote", json=body)).status_code == 422

        shown = await got(api, f"{at}/{version}")
        assert (shown["state"], shown["aliases"], shown["parent"]) == (EntryState.ROLLED_BACK, [], "v1.0.0")
        assert shown["card"]["parent"] == "v1.0.0"
        assert [one["move"]["kind"] for one in shown["decisions"]][:3] == ["register", "validate", "start_experiment"]
        by_hand = [one for one in await decisions(api) if one["who"] == "operator:local"]
        assert [one["reason"] for one in by_hand] == ["worse after all", "audit", "a person knows better"]
        assert (await got(api, "/v1/experiments"))["items"][-1]["outcome"] == "promoted"


async def test_what_happens_comes_as_events_and_an_operators_decision_among_them(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.9}, **FAST) as fleet, served(fleet) as api:
        heard: list[tuple[str, str]] = []
        listening = asyncio.create_task(listen(api, heard))
        await until(lambda: bool(heard))
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        await fleet.traffic(most=60, stop_when=lambda: fleet.submitted >= 60)
        await api.post("/v1/adapters/small/freeze", json={"reason": "look"})

        kinds = {"task.settled", "decision", "experiment", "queues", "adapter", "training"}
        await until(lambda: kinds <= {kind for kind, _ in heard})
        await until(lambda: any('"freeze"' in data for kind, data in heard if kind == "decision"))
        assert sum(kind == "task.settled" for kind, _ in heard) >= 60
        listening.cancel()
        await asyncio.wait((listening,))
        hub = fleet.orchestrator.parts.hub
        await until(lambda: hub.clients == 0)


async def test_the_queues_are_shown_with_what_they_are_for(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await fleet.bus.publish("results", b"{}", type="", message_id="m")
        queues = {queue["name"]: queue for queue in (await got(api, "/v1/queues"))["items"]}

        assert set(queues) == topology_of(fleet.settings).names | {"retry.5s", "retry.30s", "retry.5m"}
        assert (queues["results"]["messages"], queues["tasks"]["consuming"]) == (1, 1)
        assert queues["work.small"]["consumers"] == ["agent small"]
        assert (queues["retry.5s"]["retry_after_s"], queues["retry.5s"]["messages"]) == (5.0, None)


async def test_a_standby_says_that_it_is_one_on_every_route_of_the_api(tmp_path: Path) -> None:
    standby = House(tmp_path)
    async with house(tmp_path):
        waiting = asyncio.create_task(standby.open())
        await until(lambda: standby.orchestrator.trouble() is not None)
        trouble = standby.orchestrator.trouble
        app = application("orchestrator", standby.orchestrator.routers(), standby.settings, trouble, trouble)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
            for method, path in (("POST", "tasks"), ("GET", "tasks/x"), ("GET", "events"), ("GET", "adapters")):
                answer = await api.request(method, f"/v1/{path}", json={"input": "x"} if method == "POST" else None)
                assert (answer.status_code, "standby" in answer.json()["detail"]) == (503, True)
                assert "retry-after" in answer.headers
            assert (await api.get("/healthz")).status_code == 200
        waiting.cancel()
        await asyncio.wait((waiting,))
        await standby.close()


async def got(api: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def decisions(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    """All pages of two."""
    found: list[dict[str, Any]] = []
    page = await got(api, "/v1/decisions?limit=2")
    while page["next"]:
        found += page["items"]
        page = await got(api, f"/v1/decisions?limit=2&cursor={page['next']}")
    return found + page["items"]


@asynccontextmanager
async def served(fleet: LearningHouse) -> AsyncIterator[httpx.AsyncClient]:
    """On a socket: in process nobody can listen to a stream that goes on."""
    app = application("orchestrator", fleet.orchestrator.routers(), fleet.settings, fleet.orchestrator.trouble)
    async with serving(app, lifespan="auto") as address, httpx.AsyncClient(base_url=address, timeout=30) as client:
        yield client


async def listen(api: httpx.AsyncClient, heard: list[tuple[str, str]]) -> None:
    async with api.stream("GET", "/v1/events") as answer:
        kind = ""
        heard.append(("open", answer.headers["content-type"]))
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                heard.append((kind, line.removeprefix("data: ")))
