"""tool-agent: an agent that works on a task with the toolbox, over any server of OpenAI's chat completions.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python -m ratchet.tools.agent --root . "mend the failing test"

It acts in turns, each a call of the model and the tools that it asks for. With `--mode plan` it first says its steps as
JSON, ticks them off, and is reminded once of those that are left. When it says that it is done and has changed
something, the project's tests are run, and what fails is told to it. Left out: memory beyond the task, streaming,
several models.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from ratchet.service.errors import FAULTS, RatchetError
from ratchet.tools.audit import ToolAudit, audit_folder
from ratchet.tools.recorded import RecordedToolbox, read_policy, recorder_client
from workbench.tools.globs import matcher
from workbench.tools.operation import Effect
from workbench.tools.toolbox import OPERATIONS, Toolbox

Mode = Literal["act", "plan"]
Message = dict[str, Any]

TOOLS = "file_list,file_read,file_search,file_write,file_replace,test_run"
"""Unless others are asked for: each tool takes room in a small model's context."""
SYSTEM = (
    "You work in a workspace with tools. Look before you change anything, change as little as needed, and check what "
    "you did. When you are done, say in a sentence what you did, without calling a tool."
)
MOST_STEPS = 6
PLAN = (
    'First plan. Answer with JSON alone, such as {"steps": ["read a.py", "mend the sum"]}: '
    f"at most {MOST_STEPS} steps, each one thing to find out, to change or to check."
)
NO_PLAN = 'That is no JSON with a list of steps: {"steps": ["…"]}. Answer with that alone.'
CARRY_OUT = (
    "Carry the plan out with the tools, and call step_done with the number of each step that is done. Where the plan "
    "turns out to be wrong, do what is right instead.\n{steps}"
)
LEFT = "These steps are not done:\n{steps}\nDo them, or say why they are not needed."
STEP_DONE = "step_done"
STEP_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": STEP_DONE,
        "description": "Tick a step of the plan off, once it is done.",
        "parameters": {"type": "object", "properties": {"step": {"type": "integer"}}, "required": ["step"]},
    },
}
MEND = "The project's tests fail:\n{output}\nMend what is wrong, then say what you did."


class AgentFailed(RatchetError):
    """The model could not be asked, or the turns were used up."""


class ModelSettings(BaseSettings):
    """The server to ask, as OpenAI's own clients read it."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    openai_base_url: str = Field("https://api.openai.com/v1", description="Of the server's API.")
    openai_api_key: SecretStr = Field(SecretStr("none"), description="Sent as a bearer token.")


class Model(Protocol):
    async def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The assistant's turn. Raises AgentFailed."""


class ChatModel:
    """A server of chat completions. `max_tokens` bounds each answer."""

    def __init__(self, client: httpx.AsyncClient, name: str, max_tokens: int) -> None:
        self._client = client
        self._name = name
        self._max_tokens = max_tokens

    async def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        body = {"model": self._name, "messages": list(messages), "max_tokens": self._max_tokens}
        if tools:
            body["tools"] = list(tools)
        try:
            reply = await self._client.post("chat/completions", json=body)
            reply.raise_for_status()
            message = reply.json()["choices"][0]["message"]
        except httpx.HTTPStatusError as error:
            said = error.response.text[:500]
            raise AgentFailed(f"the model's server answers {error.response.status_code}: {said}") from None
        except httpx.HTTPError as error:
            raise AgentFailed(f"the model's server can't be asked: {type(error).__name__} {error}") from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise AgentFailed("the model's server answered with no chat completion") from None
        kept = {"role": "assistant", "content": message.get("content")}
        return kept | ({"tool_calls": message["tool_calls"]} if message.get("tool_calls") else {})


@dataclass(slots=True)
class Step:
    """A step of the plan."""

    says: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """`tests_pass` is None where nothing was changed, or there are no tests that can be run. `plan` is empty without
    one."""

    answer: str
    turns: int
    tests_pass: bool | None
    plan: tuple[Step, ...] = ()


class ToolAgent:
    """`tools` are globs of names, by comma. At most `turns` calls of the model, and `repairs` times back to work."""

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox,
        *,
        mode: Mode = "act",
        turns: int = 20,
        repairs: int = 2,
        tools: str = TOOLS,
    ) -> None:
        self._model = model
        self._toolbox = toolbox
        self._mode = mode
        self._turns = turns
        self._repairs = repairs
        wanted = [matcher(one.strip()) for one in tools.split(",") if one.strip()]
        self._tools = [
            tool for tool in toolbox.openai_tools() if any(fits(str(tool["function"]["name"])) for fits in wanted)
        ]
        self._plan: list[Step] = []
        self._names = {str(tool["function"]["name"]) for tool in self._tools}

    async def work(self, task: str) -> Finished:
        """Raises AgentFailed where the model can't be asked or the turns are used up."""
        messages: list[Message] = [{"role": "system", "content": SYSTEM}]
        turns, repairs, changed, reminded = 0, 0, False, False
        self._plan = []
        if self._mode == "plan":
            turns = await self._make_plan(task, messages)
        else:
            messages += [{"role": "user", "content": task}]
        tools = [*self._tools, STEP_TOOL] if self._plan else self._tools
        while turns < self._turns:
            turns += 1
            said = await self._model.ask(messages, tools)
            messages.append(said)
            if calls := said.get("tool_calls"):
                for call in calls:
                    name, content, ok = await self._call_tool(call)
                    reads = name not in OPERATIONS or OPERATIONS[name].effect in (Effect.READS, Effect.RUNS)
                    changed = changed or (ok and not reads)
                    messages.append({"role": "tool", "tool_call_id": str(call.get("id")), "content": content})
                continue
            answer = str(said.get("content") or "")
            left = [one for one in shown_steps(self._plan) if one.startswith("[ ]")]
            if left and not reminded and turns < self._turns:
                reminded = True
                messages.append({"role": "user", "content": LEFT.format(steps="\n".join(left))})
                continue
            output = await self._failing() if changed else ""
            if not output:
                return Finished(answer, turns, None if output is None or not changed else True, tuple(self._plan))
            if repairs == self._repairs:
                return Finished(answer, turns, False, tuple(self._plan))
            repairs += 1
            messages.append({"role": "user", "content": MEND.format(output=output)})
        raise AgentFailed(f"{self._turns} turns were used up before it was done")

    async def _make_plan(self, task: str, messages: list[Message]) -> int:
        """Ask for a plan, once more where there is none; return the turns that it took. Without one it acts at once."""
        messages.append({"role": "user", "content": f"{task}\n\n{PLAN}"})
        for turn in (1, 2):
            said = await self._model.ask(messages, ())
            messages.append(said)
            self._plan = read_plan(str(said.get("content") or ""))
            if self._plan or turn == min(2, self._turns):
                break
            messages.append({"role": "user", "content": NO_PLAN})
        messages.append({"role": "user", "content": CARRY_OUT.format(steps="\n".join(shown_steps(self._plan)))})
        return turn

    def _tick_off(self, arguments: str) -> str:
        """Return the plan, with the step that is done, as a tool's answer."""
        try:
            number = int(json.loads(arguments)["step"])
            if not 1 <= number <= len(self._plan):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            return json.dumps({"error": "arguments", "says": f"name a step by its number, 1 to {len(self._plan)}"})
        self._plan[number - 1].done = True
        return json.dumps({"plan": shown_steps(self._plan)}, ensure_ascii=False)

    async def _call_tool(self, call: Message) -> tuple[str, str, bool]:
        """Name, what the tool says, whether it did what it was asked."""
        function = call.get("function") or {}
        name = str(function.get("name"))
        if name == STEP_DONE and self._plan:
            return name, self._tick_off(str(function.get("arguments") or "{}")), False
        if name not in self._names:
            return name, json.dumps({"error": "arguments", "says": f"there is no tool {name[:100]!r} here"}), False
        arguments = function.get("arguments") or "{}"
        result = await self._toolbox.call(name, arguments)
        return name, result.text, result.ok

    async def _failing(self) -> str | None:
        """Return the output of failing project tests; empty where they pass, None where there are none to run."""
        result = await self._toolbox.call("test_run", {})
        if not result.ok:
            return None
        return "" if result.content["ok"] else str(result.content["output"])[-4000:]


def read_plan(answer: str) -> list[Step]:
    """Return the steps of a plan, of which an answer has the JSON; none where it has no such JSON."""
    begins, ends = answer.find("{"), answer.rfind("}")
    try:
        steps = json.loads(answer[begins : ends + 1])["steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    said = [one.strip() for one in steps if isinstance(one, str) and one.strip()] if isinstance(steps, list) else []
    return [Step(one) for one in said[:MOST_STEPS]]


def shown_steps(plan: Sequence[Step]) -> list[str]:
    """Return the plan with its ticks, a line for each step."""
    return [f"[{'x' if one.done else ' '}] {number}. {one.says}" for number, one in enumerate(plan, start=1)]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ratchet.tools.agent", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task", nargs="?", help="what is to be done; read from stdin if not given")
    parser.add_argument("--root", type=Path, default=Path(), help="the workspace; this folder if not given")
    parser.add_argument("--policy", type=Path, help="what is allowed; the safe defaults if not given")
    parser.add_argument("--audit", type=Path, help="folder of the audit, outside of the workspace")
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="the model's server is Ratchet's recorder: calls of tools are kept there",
    )
    parser.add_argument("--isolation", choices=("own", "around"), help="in place of the policy's")
    parser.add_argument("--mode", choices=("act", "plan"), default="act", help="act at once, or plan first")
    parser.add_argument("--turns", type=int, default=20, help="calls of the model, at most")
    parser.add_argument("--tools", default=TOOLS, help="names or globs, by comma")
    parser.add_argument("--model", default="any", help="the name that is asked for: a role's, of a program with roles")
    parser.add_argument("--max-tokens", type=int, default=1024, help="of each answer")
    return parser.parse_args(arguments)


async def run(given: argparse.Namespace, settings: ModelSettings) -> str:
    """The answer. Raises RatchetError."""
    policy = read_policy(given.policy).for_role(given.model)
    if given.isolation:
        policy = policy.model_copy(update={"isolation": given.isolation})
    key = settings.openai_api_key.get_secret_value()
    recorder = recorder_client(settings.openai_base_url, key) if given.recorded else None
    toolbox = (
        RecordedToolbox(given.root, policy, recorder=recorder)
        if recorder
        else Toolbox(given.root, policy, ToolAudit(given.audit or audit_folder(given.root)))
    )
    headers = {"Authorization": f"Bearer {key}"}
    base_url = settings.openai_base_url.rstrip("/") + "/"
    try:
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=600.0) as client:
            model = ChatModel(client, given.model, given.max_tokens)
            agent = ToolAgent(model, toolbox, mode=given.mode, turns=given.turns, tools=given.tools)
            task = given.task if given.task is not None else await asyncio.to_thread(sys.stdin.read)
            return (await agent.work(task)).answer
    finally:
        await toolbox.close()


def main() -> int:
    """Prints the answer; exit code 1, and why on stderr, where there is none."""
    try:
        answer = asyncio.run(run(parse_arguments(sys.argv[1:]), ModelSettings()))
    except FAULTS as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
