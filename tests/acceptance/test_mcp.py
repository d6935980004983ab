"""The official MCP client drives a running fleet of all four services: every tool, over stdio and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pika
import pytest
from mcp import Client, StdioServerParameters

from ratchet.adapters.folder import adapter_sha256
from schemas.messages.training import AdapterTrained
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, SCORER, Fleet, Member
from tests.private_broker import free_port
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.http.real_services import NAMES
from tests.ratchet.mcp.test_tools import SPECS
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

TRAINER = "trainer"
TOOLS_OF = {
    service: {spec.name for spec in SPECS if spec.route.service == service}
    for service in NAMES
    if service not in ("manager", "runner")
}
"""Those of the runner are called in test_runner.py; the manager is not in this fleet."""
WHY = "seen in the test of every tool"
SOON_S = 60.0
LOOK_EVERY_S = 0.2


@dataclass
class Asking:
    """A client that notes which tools it called, and expects them to do well."""

    client: Client
    called: set[str] = field(default_factory=set)

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self.called.add(tool)
        answer = await self.client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        assert isinstance(answer.structured_content, dict)
        return answer.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        return str(answer.content[0].text)  # type: ignore[union-attr]

    async def until(self, holds: Callable[[dict[str, Any]], Any], tool: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {}

        async def has_answer() -> bool:
            nonlocal answer
            answer = await self(tool, **arguments)
            return bool(holds(answer))

        await until(has_answer, f"the answer of {tool} that the test waits for", SOON_S)
        return answer


@pytest.fixture(scope="module")
def fleet(start_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """With a trainer, which has nothing yet that it could train from."""
    fleet = start_fleet(environment={"RATCHET_EXPERIMENT_MIN_UNITS_PER_ARM": "1000"})
    port = free_port()
    environment = fleet[SCORER].environment | {"RATCHET_TRAINER_HTTP_PORT": str(port)}
    trainer = Member(TRAINER, "services.trainer", port, environment, fleet.folder / "trainer.log")
    fleet.members[TRAINER] = trainer
    trainer.start()
    trainer.wait_until_ready()
    yield fleet


def url_of(fleet: Fleet, name: str) -> str:
    return f"http://127.0.0.1:{fleet[name].port}"


@asynccontextmanager
async def over_stdio(fleet: Fleet) -> AsyncIterator[Asking]:
    names = {ORCHESTRATOR: ORCHESTRATOR, f"{AGENT}-small": AGENT, SCORER: SCORER, TRAINER: TRAINER}
    urls = [f"--url={service}={url_of(fleet, name)}" for service, name in names.items()]
    environment = {**os.environ, "RATCHET_STATE_DIR": str(fleet.folder)}
    server = StdioServerParameters(command=sys.executable, args=["-m", "services.cli", "mcp", *urls], env=environment)
    async with Client(server) as client:
        yield Asking(client)


def publish(fleet: Fleet, queue: str, body: bytes) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(fleet.amqp_url))
    connection.channel().basic_publish("", fleet.namespace + queue, body)
    connection.close()


def train_elsewhere(fleet: Fleet) -> None:
    """A trainer of another make says that it has an adapter."""
    folder = published(fleet.folder / "adapters", "small", seed=1, run_id="elsewhere-1")
    trained = AdapterTrained(
        request_id="elsewhere-1",
        agent_id="small",
        status="trained",
        adapter_version=folder.name,
        adapter_sha256=adapter_sha256(folder),
    )
    publish(fleet, "adapters", trained.encode())


async def test_every_tool_does_its_work_on_a_running_fleet(fleet: Fleet) -> None:
    async with over_stdio(fleet) as ask:
        await tasks(ask)
        await direct_calls(ask)
        await adapters_and_experiments(ask, fleet)
        await dead_letters(ask, fleet)
        await training(ask)
        await resources_and_prompts(ask.client)
        await programs_by_hand(ask)
        await cancelling(ask, fleet)
        await without_cascades_and_questions(ask)

        assert ask.called == set().union(*TOOLS_OF.values())


async def tasks(ask: Asking) -> None:
    result = await ask("submit_task", input="hello", reference="hello", task_id="mcp-1", samples=4, wait_s=30)
    again = await ask("submit_task", input="hello", reference="hello", task_id="mcp-1", samples=4)
    chosen = await ask("deliberate", input="hey", task_id="mcp-2", samples=3, select="majority", wait_s=30)
    history = await ask("get_task", task_id="mcp-1")
    feedback = await ask("give_feedback", task_id="mcp-1", score=0.25, reason="terse", feedback_id="mcp-f-1")
    listed = await ask("list_tasks", state="ok", limit=5)
    status = await ask("fleet_status")
    queues = await ask("queues")
    programs = await ask("compare_programs", agent_id="small")
    rollouts = await ask("list_rollouts", task_id="mcp-1")

    assert (result["status"], result["response"], result["score"]) == ("ok", "hello", 1.0)
    assert again == result
    assert (chosen["status"], chosen["response"], chosen["votes"]) == ("ok", "hey", 3)
    assert (programs["items"], rollouts["items"]) == ([], [])
    assert (len(history["samples"]), history["metadata"]["source"]) == (4, "mcp")
    assert (feedback["score"], feedback["given_by"]) == (0.25, "local")
    assert [task["task_id"] for task in listed["items"]] == ["mcp-2", "mcp-1"]
    assert (status["ready"], status["tasks"]["answered"]) == (True, 2)
    assert {"tasks", "work.small", "dead-letters"} <= {queue["name"] for queue in queues["items"]}
    assert "no task" in (await ask.refused("get_task", task_id="never/asked")).lower()
    assert "nobody" in await ask.refused("submit_task", input="x", agent_id="nobody")


async def direct_calls(ask: Asking) -> None:
    generated = await ask("generate", input="hi", sampling={"n": 2}, agent_id="small")
    loaded = await ask("loaded_adapters")
    scored = await ask("score", input="hi", responses=["hi", "ho"], reference="hi")

    assert (len(generated["samples"]), generated["adapter_version"]) == (2, "v1.0.0")
    assert "v1.0.0" in {adapter["version"] for adapter in loaded["items"]}
    assert [score["score"] for score in scored["scores"]] == [1.0, 0.0]


async def adapters_and_experiments(ask: Asking, fleet: Fleet) -> None:
    train_elsewhere(fleet)
    running = await ask.until(lambda page: page["items"], "list_experiments", agent_id="small")
    experiment = await ask("experiment_status", experiment_id=running["items"][0]["experiment_id"])
    promoted = await ask("promote", agent_id="small", version="v1.0.1", reason=WHY)
    shown = await ask("show_adapter", agent_id="small", version="v1.0.1")
    rolled_back = await ask("rollback", agent_id="small", reason=WHY)
    anchored = await ask("reanchor", agent_id="small", reason=WHY)
    frozen = await ask("freeze", agent_id="small", reason=WHY)
    refused = await ask.refused("promote", agent_id="small", version="v1.0.1", reason=WHY)
    thawed = await ask("unfreeze", agent_id="small", reason=WHY)
    (agent,) = (await ask("list_adapters"))["items"]

    assert anchored["agent_id"] == "small" and anchored["distrusted"] is None
    assert (experiment["treatment"], experiment["outcome"]) == ("v1.0.1", "running")
    assert (promoted["primary"], rolled_back["primary"]) == ("v1.0.1", "v1.0.0")
    assert {decision["who"] for decision in shown["decisions"]} == {"orchestrator", "operator:local"}
    assert (frozen["frozen"]["reason"], thawed["frozen"]) == (WHY, None)
    assert refused.startswith("409 from POST /v1/adapters/{agent_id}/promote")
    assert {version["version"]: version["state"] for version in agent["versions"]}["v1.0.1"] == "rolled_back"


async def dead_letters(ask: Asking, fleet: Fleet) -> None:
    publish(fleet, "tasks", b'{"task_id": "no-input"}')
    letters = await ask.until(lambda page: page["items"], "list_dead_letters")
    (letter,) = letters["items"]
    sent = await ask("requeue_dead_letters", ids=[letter["id"]])
    await ask.until(lambda page: page["items"], "list_dead_letters")
    gone = await ask("dismiss_dead_letters", ids=[letter["id"]], reason=WHY)
    back = await ask("restore_dead_letters", ids=[letter["id"]], reason=WHY)

    assert "input: Field required" in letter["reason"]
    assert sent["sent"] == gone["dismissed"] == back["restored"] == 1


async def training(ask: Asking) -> None:
    run = await ask("start_training", agent_id="small", request_id="mcp-run", wait_s=200)
    shown = await ask("get_run", run_id="mcp-run")
    runs = await ask("list_runs", agent_id="small")
    of_the_fleet = await ask("training_status", run_id="mcp-run")
    trainings = await ask("list_trainings", agent_id="small")

    # too few answers to learn from; where no model was made yet, that is said first
    assert run["run_id"] == "mcp-run" and run["state"] in {"refused", "failed"}, run
    assert run["reason"] and shown["reason"] == run["reason"]
    assert [one["run_id"] for one in runs["items"]] == ["mcp-run"]
    assert (of_the_fleet["state"], of_the_fleet["reason"]) == (run["state"], run["reason"])
    assert [(one["run_id"], one["adapter_version"]) for one in trainings["items"]] == [
        ("mcp-run", None),
        ("elsewhere-1", "v1.0.1"),
    ]


async def programs_by_hand(ask: Asking) -> None:
    """No runner is here to say what it has, so a name is taken as it is; the gate would refuse it."""
    promoted = await ask("promote_program", agent_id="small", program="careful", reason=WHY)
    tried = await ask("try_program", agent_id="small", program="bold", reason=WHY)
    rolled_back = await ask("rollback_program", agent_id="small", program="bold", reason=WHY)
    standing = await ask("programs_standing", agent_id="small")

    assert (promoted["primary"], tried["asked"]) == ("careful", "bold")
    assert (rolled_back["primary"], rolled_back["asked"]) == ("careful", None)
    assert (standing["primary"], standing["asked"], standing["candidate"]) == ("careful", None, None)


async def cancelling(ask: Asking, fleet: Fleet) -> None:
    os.kill(fleet[SCORER].pid, signal.SIGSTOP)  # a task that has no score is open
    try:
        await ask("submit_task", input="late", task_id="mcp-late")
        cancelled = await ask("cancel_task", task_id="mcp-late")
    finally:
        os.kill(fleet[SCORER].pid, signal.SIGCONT)

    assert cancelled["status"] == "cancelled"
    assert "has ended" in (await ask.refused("cancel_task", task_id="mcp-late")).lower()


async def without_cascades_and_questions(ask: Asking) -> None:
    """A fleet without cascades and questions refuses their tools, and says why."""
    for tool in ("freeze_cascade", "unfreeze_cascade"):
        assert "cascade" in (await ask.refused(tool, agent_id="small", reason=WHY)).lower()
    assert "cascade" in (await ask.refused("set_cascade", agent_id="small", share=0.4, reason=WHY)).lower()
    asked = await ask("list_approvals")
    assert asked["items"] == []
    assert "approval" in (await ask.refused("answer_approval", approval_id="none", decision="approve")).lower()
    ask.called |= {"freeze_cascade", "unfreeze_cascade", "set_cascade", "answer_approval"}


async def resources_and_prompts(client: Client) -> None:
    listed = {resource.uri for resource in (await client.list_resources()).resources}
    templates = (await client.list_resource_templates()).resource_templates
    assert (len(listed), len(templates)) == (8, 5)

    read = {uri: json.loads((await client.read_resource(uri)).contents[0].text) for uri in listed}  # type: ignore[union-attr]
    tail = read["ratchet://log/tail"]["items"]
    assert {line["task_id"] for line in tail} == {"mcp-1", "mcp-2"}
    assert read["ratchet://registry"]["items"][0]["agent_id"] == "small"
    assert read["ratchet://decisions"]["items"][0]["move"]["kind"] == "unfreeze"
    task = await client.read_resource("ratchet://tasks/mcp-1")
    assert json.loads(task.contents[0].text)["result"]["response"] == "hello"  # type: ignore[union-attr]

    tried = await client.call_tool("list_experiments", {"agent_id": "small"})
    experiment_id = tried.structured_content["items"][-1]["experiment_id"]  # type: ignore[index]
    experiment = await client.read_resource(f"ratchet://experiments/{experiment_id}")
    assert json.loads(experiment.contents[0].text)["treatment"] == "v1.0.1"  # type: ignore[union-attr]

    for prompt in (await client.list_prompts()).prompts:
        given = {argument.name: "small" for argument in prompt.arguments or ()}
        assert (await client.get_prompt(prompt.name, given)).messages


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_each_service_serves_its_own_tools_at_mcp(fleet: Fleet, mode: str) -> None:
    for service, tools in TOOLS_OF.items():
        async with Client(f"{url_of(fleet, service)}/mcp", mode=mode) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed) == tools
            assert all(tool.output_schema and tool.annotations for tool in listed.values())

    async with Client(f"{url_of(fleet, ORCHESTRATOR)}/mcp", mode=mode) as client:
        result = await Asking(client)("submit_task", input="again", reference="again", wait_s=30)
        assert (result["status"], result["score"]) == ("ok", 1.0)
