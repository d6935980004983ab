"""The official client library against a served application: tools, roles, errors, progress, cancelling, bounds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from ratchet.http.access.roles import Role
from ratchet.service.settings import FleetSettings
from tests.ratchet.mcp.toy_fleet import Toy, client_of, served, with_keys
from workbench.tools.bounds import MOST_CHARACTERS

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPTS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def settings(tmp_path: Path) -> FleetSettings:
    return FleetSettings(logs_dir=tmp_path / "logs")


@MODES
async def test_a_client_of_either_protocol_gets_a_typed_answer(mode: str, settings: FleetSettings) -> None:
    toy = Toy()
    async with served("orchestrator", toy.orchestrator(), settings) as url, client_of(url, mode=mode) as client:
        answer = await client.call_tool("submit_task", {"input": '{"say": "x"}', "reference": "[1]"})

    assert answer.structured_content is not None
    assert answer.structured_content["response"] == '{"say": "x"}'
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    sent = {"input": '{"say": "x"}', "reference": "[1]", "metadata": {"source": "mcp"}}
    assert toy.calls == [("submit", "local", sent)]


async def test_an_object_that_came_as_json_in_a_string_is_understood(settings: FleetSettings) -> None:
    toy = Toy()
    async with served("trainer", toy.trainer(), settings) as url, client_of(url) as client:
        answer = await client.call_tool("start_training", {"agent_id": "small", "hyperparameters": '{"epochs": 2}'})

    assert not answer.is_error


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("submit_task", {"inptu": "x"}, "not a valid call of submit_task: input is missing; inptu is not known here"),
    ("submit_task", {"input": "x", "samples": 65}, "samples: must be less than or equal to 64"),
    (
        "promote",
        {"agent_id": "../../secret", "version": "v1.0.9", "reason": "try"},
        "not a valid call of promote: agent_id must match ^[a-z0-9]",
    ),
    ("get_task", {"task_id": "lost"}, "404 from GET /v1/tasks/{task_id}: no task 'lost' was ever admitted"),
    (
        "promote",
        {"agent_id": "small", "version": "v1.0.9", "reason": "try"},
        "409 from POST /v1/adapters/{agent_id}/promote: v1.0.9 is rejected",
    ),
    ("no_such_tool", {}, "Unknown tool"),
]


@MODES
async def test_what_goes_wrong_is_a_sentence_the_model_can_read(mode: str, settings: FleetSettings) -> None:
    async with served("orchestrator", Toy().orchestrator(), settings) as url, client_of(url, mode=mode) as client:
        for tool, arguments, sentence in WRONG:
            answer = await client.call_tool(tool, arguments)

            assert answer.is_error
            assert sentence in answer.content[0].text  # type: ignore[union-attr]


async def test_waiting_is_told_and_bounded(settings: FleetSettings) -> None:
    toy = Toy(holds_s=60)
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with served("orchestrator", toy.orchestrator(), settings) as url, client_of(url) as client:
        answer = await client.call_tool("submit_task", {"input": "x", "wait_s": 2.5}, progress_callback=note)

    assert answer.structured_content == {"task_id": "t-1", "state": "open", "location": "/v1/tasks/t-1"}
    assert [round(progress) for progress, _, _ in told][:2] == [1, 2]  # a third where the answer comes late
    assert {total for _, total, _ in told} == {2.5}
    assert told[0][2] == "waiting for the answer: 1 s of at most 2 s"


async def test_a_cancelled_call_is_broken_off_in_the_service(settings: FleetSettings) -> None:
    toy = Toy(holds_s=60)
    async with served("orchestrator", toy.orchestrator(), settings) as url, client_of(url) as client:
        calling = asyncio.create_task(client.call_tool("submit_task", {"input": "x", "wait_s": 50}))
        await toy.called.wait()
        calling.cancel()
        await asyncio.wait_for(toy.broken_off.wait(), 30)
        still = await client.call_tool("list_adapters")

    assert not still.is_error


async def test_an_older_client_that_leaves_breaks_its_call_off(settings: FleetSettings) -> None:
    toy = Toy(holds_s=60)
    async with served("orchestrator", toy.orchestrator(), settings) as url:
        async with client_of(url, mode="legacy") as client:
            calling = asyncio.create_task(client.call_tool("submit_task", {"input": "x", "wait_s": 50}))
            await toy.called.wait()
            calling.cancel()
        await asyncio.wait_for(toy.broken_off.wait(), 30)


async def test_a_change_whose_caller_gives_up_is_not_broken_off_half_way(settings: FleetSettings) -> None:
    toy = Toy(promotes_s=0.5)
    async with served("orchestrator", toy.orchestrator(), settings) as url, client_of(url) as client:
        promoting = {"agent_id": "small", "version": "v1.0.1", "reason": "because"}
        calling = asyncio.create_task(client.call_tool("promote", promoting))
        await toy.called.wait()
        calling.cancel()
        await asyncio.wait_for(toy.promoted.wait(), 30)


async def test_a_training_is_followed_to_its_end(settings: FleetSettings) -> None:
    toy = Toy(states=["queued", "running", "trained"])
    told: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with served("trainer", toy.trainer(), settings) as url, client_of(url) as client:
        at_once = await client.call_tool("start_training", {"agent_id": "small"})
        ended = await client.call_tool("start_training", {"agent_id": "small", "wait_s": 30}, progress_callback=note)

    assert at_once.structured_content is not None and at_once.structured_content["state"] == "queued"
    assert ended.structured_content is not None and ended.structured_content["state"] == "trained"
    assert told == ["queued", "running", "trained"]


async def test_a_big_answer_is_cut_to_a_size_that_can_be_read_and_says_where(settings: FleetSettings) -> None:
    async with (
        served("orchestrator", Toy(answer_length=300_000).orchestrator(), settings) as url,
        client_of(url) as client,
    ):
        answer = await client.call_tool("get_task", {"task_id": "t 1/2"})

    whole, note = (content.text for content in answer.content)  # type: ignore[union-attr]
    assert len(whole) <= MOST_CHARACTERS
    assert answer.structured_content == json.loads(whole)
    assert "more characters)" in answer.structured_content["samples"][0]["text"]
    assert note.startswith("Shortened to fit: samples[0].text, samples[1].text")
    assert note.endswith("Whole with GET /v1/tasks/t%201%2F2")


TOOLS_OF = {
    Role.VIEWER: {"get_task", "list_adapters"},
    Role.SUBMITTER: {"get_task", "submit_task"},
    Role.OPERATOR: {"get_task", "list_adapters", "submit_task", "promote"},
}


async def test_each_role_sees_the_tools_it_may_call_and_is_refused_the_others(tmp_path: Path) -> None:
    settings, tokens = with_keys(tmp_path)
    toy = Toy()
    async with served("orchestrator", toy.orchestrator(), settings) as url:
        for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR):
            async with client_of(url, tokens[role]) as client:
                listed = {tool.name for tool in (await client.list_tools()).tools}
                assert listed == TOOLS_OF[role]

                promoting = {"agent_id": "small", "version": "v1.0.1", "reason": "because"}
                refusal = (await client.call_tool("promote", promoting)).content[0].text  # type: ignore[union-attr]
                assert refusal.startswith("409" if role is Role.OPERATOR else "403")

                submitted = await client.call_tool("submit_task", {"input": "x"})
                assert submitted.is_error == (role is Role.VIEWER)

    assert [(what, who) for what, who, _ in toy.calls] == [
        ("submit", "submitter-ann"),
        ("promote small", "operator-ann"),
        ("submit", "operator-ann"),
    ]


async def test_without_a_token_there_is_nothing_to_see(tmp_path: Path) -> None:
    settings, _ = with_keys(tmp_path)
    async with served("orchestrator", Toy().orchestrator(), settings) as url, httpx.AsyncClient() as http:
        refused = await http.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPTS)
        forged = await http.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPTS | {"Authorization": "Bearer x.y.z"})

    assert (refused.status_code, forged.status_code) == (401, 401)
    assert refused.headers["content-type"] == "application/problem+json"
    assert "www-authenticate" in refused.headers


async def test_pages_of_other_sites_and_other_names_of_this_machine_are_refused(settings: FleetSettings) -> None:
    async with served("orchestrator", Toy().orchestrator(), settings) as url, httpx.AsyncClient() as http:
        page = await http.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPTS | {"Origin": "https://evil.example"})
        rebound = await http.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPTS | {"Host": "evil.example"})

    assert (page.status_code, rebound.status_code) == (403, 403)


async def test_there_are_no_sessions_to_open_or_end_and_no_giant_messages(settings: FleetSettings) -> None:
    small = settings.model_copy(update={"max_message_bytes": 1024})
    async with served("orchestrator", Toy().orchestrator(), small) as url, httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/mcp")).status_code == 405
        assert (await http.delete(f"{url}/mcp")).status_code == 405
        assert (await http.post(f"{url}/mcp", content=b"x" * 5000, headers=ACCEPTS)).status_code == 413
        initialized = await http.post(f"{url}/mcp", json=INITIALIZE, headers=ACCEPTS)

    assert initialized.status_code == 200
    assert "mcp-session-id" not in initialized.headers


async def test_a_service_at_start_says_so(settings: FleetSettings) -> None:
    toy = Toy()
    standby = served("orchestrator", toy.orchestrator(), settings, phase="standby: another one leads")
    async with standby as url, client_of(url) as client:
        answer = await client.call_tool("list_adapters")

    assert answer.is_error
    assert "503 from GET /v1/adapters: standby: another one leads" in answer.content[0].text  # type: ignore[union-attr]


async def test_resources_are_read_through_the_api(settings: FleetSettings) -> None:
    async with served("orchestrator", Toy().orchestrator(), settings) as url, client_of(url) as client:
        listed = {resource.uri for resource in (await client.list_resources()).resources}
        templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        tail = await client.read_resource("ratchet://log/tail")
        task = await client.read_resource("ratchet://tasks/t-7")
        with pytest.raises(MCPError, match="no task 'lost' was ever admitted"):
            await client.read_resource("ratchet://tasks/lost")
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("ratchet://tasks/..%2F..%2Fsecret")

    assert listed == {"ratchet://log/tail", "ratchet://registry"}
    assert templates == {"ratchet://tasks/{+value}"}
    assert json.loads(tail.contents[0].text) == {"items": [], "next": "50"}  # type: ignore[union-attr]
    assert json.loads(task.contents[0].text)["task_id"] == "t-7"  # type: ignore[union-attr]


async def test_resources_need_the_role_too(tmp_path: Path) -> None:
    settings, tokens = with_keys(tmp_path)
    async with (
        served("orchestrator", Toy().orchestrator(), settings) as url,
        client_of(url, tokens[Role.SUBMITTER]) as client,
    ):
        with pytest.raises(MCPError, match="403 from GET /v1/log"):
            await client.read_resource("ratchet://log/tail")


async def test_prompts_are_listed_and_filled_in(settings: FleetSettings) -> None:
    async with served("orchestrator", Toy().orchestrator(), settings) as url, client_of(url) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        asked = await client.get_prompt("why_rolled_back", {"agent_id": "small", "version": "v1.0.2"})

    assert set(prompts) == {"morning_check", "investigate_task", "why_rolled_back", "judge_candidate"}
    text = asked.messages[0].content.text  # type: ignore[union-attr]
    assert "adapter v1.0.2 of agent small" in text
