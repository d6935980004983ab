"""An agent's tools: answer a prompt directly, and which adapters it has loaded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ratchet.mcp.call import Call, prompt_json
from ratchet.mcp.tool_table import Effect, ToolTable
from schemas.api.generate import GenerateAnswer, LoadedAdapters
from schemas.messages.base import AdapterVersion, AgentId
from schemas.messages.task import Prompt

GENERATE_S = 120.0

TOOLS = ToolTable("agent")

WhichOfSeveral = Annotated[
    AgentId | None, Field(description="Which agent, where the server speaks for several; the first one if absent.")
]


@TOOLS.tool("POST /v1/generate", GenerateAnswer, "Let an agent answer directly", Effect.READS)
def generate(
    input: Annotated[Prompt, Field(description="The prompt: text, or a list of chat messages with role and content.")],
    n: Annotated[int | None, Field(ge=1, le=64, description="Answers to sample.")] = None,
    temperature: Annotated[float | None, Field(ge=0, le=5, description="0 always takes the likeliest token.")] = None,
    top_p: Annotated[float | None, Field(gt=0, le=1, description="Nucleus sampling; 1 filters nothing.")] = None,
    top_k: Annotated[int | None, Field(ge=0, description="0: all tokens.")] = None,
    max_tokens: Annotated[int | None, Field(ge=1, description="Longest answer, in tokens.")] = None,
    adapter_version: Annotated[
        AdapterVersion | None, Field(description="Such as 'v1.0.2'; it must be loaded. The primary if absent.")
    ] = None,
    agent_id: WhichOfSeveral = None,
) -> Call:
    """Ask the small model directly. The answers are not scored, not logged and not learned from: it is for trying
    things out and comparing adapter versions. To have a task answered well, use the orchestrator's submit_task.
    """
    given = {"n": n, "temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": max_tokens}
    sampling = {name: value for name, value in given.items() if value is not None}
    body = {
        "input": prompt_json(input),
        "sampling": sampling or None,
        "adapter_version": adapter_version,
    }
    return Call(body=body, wait_s=GENERATE_S, awaited="the model is answering", agent_id=agent_id)


@TOOLS.tool("GET /v1/adapters", LoadedAdapters, "List loaded adapters", Effect.READS)
def loaded_adapters(agent_id: WhichOfSeveral = None) -> Call:
    """The adapter versions this replica of the agent has loaded and can answer with now."""
    return Call(agent_id=agent_id)
