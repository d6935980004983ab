"""`ratchet mcp` as a process, spoken to by the official client library."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters

from ratchet.http.access.roles import Role
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.ratchet.mcp.test_tools import ROLES
from tests.ratchet.mcp.toy_fleet import Toy, served, with_keys

NOWHERE = "http://127.0.0.1:9"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def command(url: str, token_file: Path | None = None, nowhere: bool = True) -> list[str]:
    """Only the orchestrator is served; the other services have addresses where nobody listens."""
    others = ("manager", "runner", "scorer", "trainer", "agent-small", "agent-code")
    urls = [f"orchestrator={url}", *(f"{name}={NOWHERE}" for name in others if nowhere)]
    token = ["--token-file", str(token_file)] if token_file else []
    return [sys.executable, "-m", "services.cli", "mcp", *(f"--url={one}" for one in urls), *token]


@asynccontextmanager
async def client_at(url: str, folder: Path, token_file: Path | None = None) -> AsyncIterator[Client]:
    program, *arguments = command(url, token_file)
    environment = {**os.environ, "RATCHET_STATE_DIR": str(folder)}
    async with Client(StdioServerParameters(command=program, args=arguments, env=environment)) as client:
        yield client


async def test_it_has_the_tools_of_all_services_and_calls_theirs_with_the_token_of_the_moment(tmp_path: Path) -> None:
    settings, tokens = with_keys(tmp_path)
    toy = Toy(holds_s=60)
    token_file = tmp_path / "token"
    token_file.write_text(tokens[Role.OPERATOR])
    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with (
        served("orchestrator", toy.orchestrator(), settings) as url,
        client_at(url, tmp_path, token_file) as client,
    ):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert set(listed) == ROLES.keys() and len(listed) == len(ROLES)

        answer = await client.call_tool("submit_task", {"input": "x", "wait_s": 1.2}, progress_callback=note)
        assert answer.structured_content == {"task_id": "t-1", "state": "open", "location": "/v1/tasks/t-1"}
        assert told

        tail = await client.read_resource("ratchet://log/tail")
        assert json.loads(tail.contents[0].text)["items"] == []  # type: ignore[union-attr]

        away = await client.call_tool("generate", {"input": "x", "agent_id": "code"})
        unknown = await client.call_tool("generate", {"input": "x", "agent_id": "poet"})
        sentences = [result.content[0].text for result in (away, unknown)]  # type: ignore[union-attr]
        assert sentences[0].startswith("the agent can't be reached")
        assert sentences[1] == "there is no agent 'poet' here; there are small, code"

        toy.called.clear()
        calling = asyncio.create_task(client.call_tool("submit_task", {"input": "y", "wait_s": 50}))
        await toy.called.wait()
        calling.cancel()

        token_file.write_text(tokens[Role.VIEWER])
        visible = {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("promote", {"agent_id": "small", "version": "v1.0.1", "reason": "try"})
        assert "promote" not in visible and "get_task" in visible
        assert refused.content[0].text.startswith("403 from POST")  # type: ignore[union-attr]


def test_it_writes_protocol_only_and_ends_with_its_client(tmp_path: Path) -> None:
    lines = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    lines += [{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]

    with subprocess.Popen(
        command(NOWHERE),
        env={**os.environ, "RATCHET_STATE_DIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("not json\n" + "".join(json.dumps(line) + "\n" for line in lines))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline())]
        while answers[-1].get("id") != 2:
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        rest, remarks = process.stdout.read(), process.stderr.read()

    assert (process.returncode, rest) == (0, "")
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert "Traceback" not in remarks


def test_what_was_typed_wrongly_is_a_sentence_and_no_protocol(tmp_path: Path) -> None:
    done = ForkedRatchet(tmp_path)("mcp", "--url", "judge=http://x")

    assert (done.code, done.out) == (2, "")
    assert "there is no service 'judge'" in done.err
