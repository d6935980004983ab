"""Agents that are registered at run time: whose they are, what they may be, how their tasks go to the fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import create_engine, insert, select

from ratchet.http.access.roles import LOCAL, Role
from ratchet.programs.declared import Program
from schemas.api.agents import AgentState, NewAgent, RunnerReport
from services.manager.agent_store import add, get, state_of, take_report
from services.manager.tables import METADATA, agents
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.manager.managed import Managed, ScriptedFleet, managed
from tests.services.manager.test_budgets import SMALL, answer
from tests.waiting import settled, until

PROGRAM: dict[str, Any] = {"command": ["python3", "/agent/main.py"], "data": {"/agent/main.py": "print(1)"}}


async def register(here: Managed, name: str = "bot", status: int = 201, **rules: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await here.post("/v1/agents", status, json={"name": name, "program": PROGRAM, **rules})
    return answer


async def report(here: Managed, revision: int = 1, state: str = "ready", name: str = "bot", **more: Any) -> Any:
    one = {"name": name, "revision": revision, "state": state, **more}
    return await here.post("/v1/runner-reports", json={"runner": "r-1", "agents": [one]})


async def test_a_job_of_an_agent_waits_until_a_runner_is_ready_for_it(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given an agent that nobody runs yet, and a job of it
        assert (await register(here))["state"] == "installing"
        await here.submit(2, job_id="j", agent_id="bot")
        await settled()

        async def says_so() -> bool:
            return "no runner has taken it yet" in (await here.get("/v1/jobs/j"))["reason"]

        await until(says_so)
        assert not here.fleet.submitted

        # when a runner asks, it gets the program; when it is ready, the tasks go out
        given = await here.post("/v1/runner-reports", json={"runner": "r-1"})
        assert given["items"] == [{"name": "bot", "model": "small", "revision": 1, "program": PROGRAM}]
        await report(here)
        assert await here.released(2) == ["j/0", "j/1"]
        task = here.fleet.open["j/0"]
        assert (task.agent_id, task.registered_agent, task.kept_apart) == ("small", "bot", None)

        # then its figures are those of its jobs
        for n in (0, 1):
            here.fleet.answer(f"j/{n}", score=0.5 + n / 2, usage={"prompt_tokens": 2, "sampled_tokens": 3})
        await here.wait_for("j", state="done")
        figures = await here.get("/v1/agents/bot/metrics")
        assert (figures["ok"], figures["mean_score"], figures["sampled_tokens"]) == (2, 0.75, 6)


@pytest.mark.parametrize(
    ("rules", "version", "apart"),
    [
        ({"kind": "simulation"}, None, None),
        ({"kind": "simulation", "adapter_version": "v1.0.2"}, "v1.0.2", None),
        ({"kind": "evaluation"}, None, True),
        ({"kind": "research", "adapter_version": "v1.0.1"}, "v1.0.1", "research"),
    ],
)
async def test_a_kind_is_a_rule_for_its_tasks(
    tmp_path: Path, rules: dict[str, Any], version: str | None, apart: bool | str | None
) -> None:
    async with managed(tmp_path) as here:
        await register(here, **rules)
        await report(here)
        until = datetime.now(UTC) + timedelta(
            hours=1
        )  # of a job that lasts longer than a task may, each sending counts
        await here.submit(1, job_id="j", agent_id="bot", deadline=until.isoformat())
        await here.released(1)
        task = here.fleet.open["j/0"]
        assert (task.adapter_version, task.kept_apart) == (version, apart)

    # and the next manager sends what is open in the same way
    fleet = ScriptedFleet()
    async with managed(tmp_path, fleet) as here:
        await here.released(1)
        assert fleet.open["j/0"] == task


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "research"}, "names the version"),
    ({"kind": "real"}, "a real agent has one"),
    ({"kind": "real", "budget": "5"}, "no prices"),
    ({"program": {}}, "neither a command nor"),
    ({"program": PROGRAM | {"binds": {"/etc": "/etc"}}}, "bind no folder"),
    ({"program": {"image": {"folder": "/"}}}, "pulled by its digest"),
    ({"program": PROGRAM | {"requirements": ["--index-url=http://x"]}}, "no name and version"),
    ({"program": PROGRAM | {"requirements": ["a @ file:///etc"]}}, "no name and version"),
    ({"program": PROGRAM | {"requirements": ["./a"]}}, "no name and version"),
    ({"program": PROGRAM | {"tools": True}, "tools": False}, "no tools"),
    ({"tool_policy": {"file_writ": "deny"}}, "is 'file_write' meant?"),
    ({"program": PROGRAM | {"tools": True}, "kind": "real", "budget": "1"}, "which tools its program may call"),
    ({"program": PROGRAM | {"data": {"/ratchet/policy.toml": ""}}}, "where the tools of Ratchet lie"),
    ({"program": PROGRAM | {"environment": {"RATCHET_X": "1"}}}, "can't be set"),
    ({"budget": "NaN"}, "budget"),
    ({"name": "Not A Name"}, "name"),
]


async def test_an_agent_that_can_not_be_is_refused(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        for rules, says in REFUSED:
            refused = await register(here, status=422, **rules)
            assert says in refused["detail"]
        assert (await here.get("/v1/agents"))["items"] == []


async def test_the_same_agent_again_changes_nothing_and_another_one_is_refused(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        assert await register(here) == await register(here)
        await register(here, status=409, kind="evaluation")
        await register(here, "coder", status=409)
        await register(here, status=404, model="none")


async def test_another_program_is_another_revision_and_other_rules_are_not(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await register(here)
        await report(here)
        rules = {"kind": "evaluation", "needs_approval": True}
        changed = (await here.api.patch("/v1/agents/bot", json=rules)).json()
        assert (changed["revision"], changed["state"], changed["kind"]) == (1, "ready", "evaluation")

        other = PROGRAM | {"limits": {"seconds": 5}}
        changed = (await here.api.patch("/v1/agents/bot", json={"program": other})).json()
        assert (changed["revision"], changed["state"]) == (2, "installing")
        await report(here, 2, "broken", reason="no such file")
        broken = await here.get("/v1/agents/bot")
        assert (broken["state"], broken["reason"]) == ("broken", "runner r-1: no such file")
        assert (await here.api.patch("/v1/agents/bot", json={"program": None})).status_code == 422
        assert (await here.api.patch("/v1/agents/bot", json={"kind": "real"})).status_code == 422


async def test_the_tools_of_a_program_have_the_policy_of_its_agent(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await register(
            here,
            program=PROGRAM | {"tools": True, "tool_policy": {"reviewer": {"*": "deny", "file_remove": "deny"}}},
            tool_policy={"file_remove": "allow", "http_get": "deny"},
        )

        (given,) = (await here.post("/v1/runner-reports", json={"runner": "r-1"}))["items"]
        assert given["program"]["tool_policy"] == {
            "*": {"file_remove": "allow", "http_get": "deny"},
            "reviewer": {"*": "deny", "file_remove": "allow", "http_get": "deny"},
        }
        assert Program.model_validate(given["program"]).data["/agent/main.py"] == "print(1)"

        # another policy is another revision
        changed = (await here.api.patch("/v1/agents/bot", json={"tool_policy": {}})).json()
        assert changed["revision"] == 2
        assert changed["program"]["tool_policy"] == {"reviewer": {"*": "deny", "file_remove": "deny"}}


async def test_a_removed_agent_takes_no_job_and_runs_those_it_has(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        await register(here)
        await report(here)
        await here.submit(2, job_id="j", agent_id="bot")
        await here.released(1)

        # when it is removed
        assert (await here.api.delete("/v1/agents/bot")).json()["state"] == "retired"
        refused = await here.post("/v1/jobs", 409, json={"tasks": ["a"], "agent_id": "bot"})
        assert "was removed" in refused["detail"]
        await register(here, status=409)

        # then runners keep its program until its last task has ended
        assert [one["name"] for one in (await report(here))["items"]] == ["bot"]
        here.fleet.answer("j/0")
        await until(lambda: "j/1" in here.fleet.open)
        here.fleet.answer("j/1")
        await here.wait_for("j", state="done", ok=2)
        assert (await report(here))["items"] == []
        assert (await register(here))["revision"] == 2


async def test_an_agent_that_was_removed_long_ago_is_forgotten(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_keep_days=1e-9) as here:
        await register(here)
        await here.api.delete("/v1/agents/bot")

        async def is_forgotten() -> bool:
            return (await here.api.get("/v1/agents/bot")).status_code == 404

        await until(is_forgotten)


async def test_a_submitter_sees_and_changes_its_own_agents(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    async with managed(tmp_path, api_public_keys=mint.keys.jwks, api_hosts=("127.0.0.1",)) as here:
        here.api.headers.update(bearer(mint.good(Role.OPERATOR, "olga")))
        await register(here, "for-all")
        here.api.headers.update(bearer(mint.good(Role.SUBMITTER, "ann")))
        await register(here, "anns")

        here.api.headers.update(bearer(mint.good(Role.SUBMITTER, "bob")))
        assert [one["name"] for one in (await here.get("/v1/agents"))["items"]] == ["for-all"]
        await here.get("/v1/agents/anns", 404)
        await here.get("/v1/agents/anns/metrics", 404)
        await here.get("/v1/agents/for-all")
        for name in ("anns", "for-all"):
            assert (await here.api.patch(f"/v1/agents/{name}", json={"kind": "evaluation"})).status_code == 404
            assert (await here.api.delete(f"/v1/agents/{name}")).status_code == 404
        await here.post("/v1/jobs", 404, json={"tasks": ["a"], "agent_id": "anns"})
        await here.post("/v1/jobs", json={"tasks": ["a"], "agent_id": "for-all"})

        here.api.headers.update(bearer(mint.good(Role.OPERATOR, "olga", "acme")))
        assert [one["name"] for one in (await here.get("/v1/agents"))["items"]] == ["for-all"]
        await here.get("/v1/agents/anns", 404)
        here.api.headers.update(bearer(mint.good(Role.RUNNER, "r-1")))
        await here.get("/v1/agents", 403)
        assert len((await here.post("/v1/runner-reports", json={"runner": "r-1"}))["items"]) == 2


async def test_a_job_waits_for_approval_where_its_agent_says_so(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    async with managed(tmp_path, api_public_keys=mint.keys.jwks, api_hosts=("127.0.0.1",)) as here:
        here.api.headers.update(bearer(mint.good(Role.SUBMITTER, "ann")))
        await register(here, needs_approval=True)
        job = await here.submit(1, job_id="j", agent_id="bot")
        assert (job["state"], "waits for approval" in job["reason"]) == ("paused", True)

        # its submitter can't let it go on, not by cancelling it and running it again either
        await here.post("/v1/jobs/j/resume", 409)
        await here.post("/v1/jobs/j/cancel")
        assert (await here.post("/v1/jobs/j/rerun"))["state"] == "paused"

        operator = bearer(mint.good(Role.OPERATOR, "olga"))
        await here.post("/v1/runner-reports", json={"runner": "r", "agents": [REPORT]}, headers=operator)
        await settled()
        assert not here.fleet.submitted
        await here.post("/v1/jobs/j/resume", headers=operator)
        assert await here.released(1) == ["j/0/2"]


REPORT = {"name": "bot", "revision": 1, "state": "ready"}


async def test_the_budget_of_an_agent_holds_for_all_of_its_jobs(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(SMALL)
    async with managed(tmp_path, prices=prices) as here:
        # given a program that may call the model three times: a task costs at most 30, not the 10 of one call
        await register(here, kind="real", budget="75", program=PROGRAM | {"limits": {"calls": 3}})
        await report(here)
        for name in "xy":
            await here.submit(3, job_id=name, agent_id="bot")
        await here.released(2)
        await settled()
        assert len(here.fleet.submitted) == 2
        for task_id in list(here.fleet.open):
            answer(here, task_id, 30)
        paused = [await here.wait_for(name, state="paused") for name in "xy"]
        assert "the budget of the agent 'bot' can't pay for the next task" in paused[0]["reason"]
        assert (await here.get("/v1/agents/bot/metrics"))["spent"] == "60.000000"


async def test_calls_that_are_shorter_than_the_prices_say_are_all_paid(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(SMALL)
    async with managed(tmp_path, prices=prices) as here:
        # given two rollouts of three calls that sample five tokens in all, two in each call, where a call has five
        await register(here, program=PROGRAM | {"limits": {"calls": 3, "tokens": 5}})
        await report(here)
        await here.post("/v1/jobs", json={"job_id": "j", "agent_id": "bot", "tasks": [{"input": "a", "max_tokens": 2}]})
        await here.released(1)
        assert (await here.wait_for("j", released=1))["reserved"] == "10.000000"

        answer(here, "j/0", 10)
        assert (await here.wait_for("j", state="done"))["spent"] == "10.000000"


class Said(NamedTuple):
    revision: int
    state: str
    runner: str = "r-1"
    reason: str | None = None


@pytest.mark.parametrize(
    ("reports", "state"),
    [
        ([], AgentState.INSTALLING),
        ([Said(2, "ready")], AgentState.READY),
        ([Said(1, "ready")], AgentState.INSTALLING),
        ([Said(2, "ready"), Said(1, "ready")], AgentState.INSTALLING),
        ([Said(2, "ready"), Said(2, "installing")], AgentState.INSTALLING),
        ([Said(2, "ready"), Said(2, "broken", reason="no pip")], AgentState.BROKEN),
        ([Said(1, "broken")], AgentState.INSTALLING),
    ],
)
def test_the_state_of_an_agent_is_what_all_runners_say_of_its_revision(reports: list[Said], state: AgentState) -> None:
    assert state_of(False, 2, reports)[0] is state
    assert state_of(True, 2, reports)[0] is AgentState.RETIRED


def test_a_runner_that_is_gone_is_heard_of_no_more_also_where_the_clock_was_set_back() -> None:
    with create_engine("sqlite://").connect() as connection:
        METADATA.create_all(connection)
        asked = NewAgent.model_validate({"name": "bot", "program": PROGRAM})
        add(connection, asked, "small", LOCAL, None, 0.0)

        # given a runner that could not run the agent, and another one that can
        for runner, state in (("gone", "broken"), ("here", "ready")):
            said = RunnerReport.model_validate({"runner": runner, "agents": [REPORT | {"state": state}]})
            take_report(connection, said, 9_000.0)
        assert get(connection, "bot", 9_000.0).state is AgentState.BROKEN

        # when the clock is set back by an hour, and only the second one reports
        take_report(connection, said, 5_400.0)

        assert get(connection, "bot", 5_400.0).state is AgentState.READY


async def test_a_runner_gets_a_program_until_it_has_it(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await register(here)

        async def programs(**reported: Any) -> list[Any]:
            body = {"runner": "r-1", "agents": [REPORT | reported], "keeps_programs": True}
            return [one.get("program") for one in (await here.post("/v1/runner-reports", json=body))["items"]]

        (program,) = await programs(revision=2)
        assert program["data"] == PROGRAM["data"]
        assert await programs() == [None]


async def test_what_a_runner_would_do_itself_for_a_program_is_bounded(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    pulled = PROGRAM | {"image": {"pull": "docker://10.0.0.1/x@sha256:" + "0" * 64}}
    async with managed(tmp_path, api_public_keys=mint.keys.jwks, api_hosts=("127.0.0.1",)) as here:
        here.api.headers.update(bearer(mint.good(Role.SUBMITTER, "ann")))
        for program, says in (
            (pulled, "only an operator of all tenants"),
            (PROGRAM | {"limits": {"output_kb": 10**9}}, "at most 65,536"),
            (PROGRAM | {"limits": {"disk_mb": 10**6}}, "at most 4,096"),
            (PROGRAM | {"data": {f"/agent/{n}": "x" for n in range(1_001)}}, "at most 1,000 files"),
        ):
            assert says in (await register(here, status=422, program=program))["detail"]
        await register(here, "bot")
        with create_engine(f"sqlite:///{tmp_path}/jobs.sqlite").begin() as connection:
            (row,) = connection.execute(select(agents)).mappings()
            more = [dict(row) | {"name": f"bot-{number}"} for number in range(99)]
            connection.execute(
                insert(agents), more + [one | {"name": f"o-{one['name']}", "owner": "olga"} for one in more]
            )
        assert "at most 100 agents" in (await register(here, "one-more", 429))["detail"]
        here.api.headers.update(bearer(mint.good(Role.OPERATOR, "olga")))
        await register(here, "olgas", program=pulled)
        await register(here, "one-more-of-olga")
