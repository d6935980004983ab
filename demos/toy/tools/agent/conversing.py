"""The agent: asks a model by OpenAI's chat completions and uses the tools it calls, until it calls none. No fleet."""

from __future__ import annotations

from typing import Any

import httpx

from demos.toy.tools.task import TOOLS, Workspace

MOST_CALLS = 8
"""The most calls of the model. A careful answer takes six at most."""


async def converse(http: httpx.AsyncClient, base_url: str, key: str, workspace: Workspace) -> str:
    """Let the model work until it answers. Return its answer, "" where it called tools to the last.

    Raises httpx.HTTPError.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": workspace.task.question}]
    for _ in range(MOST_CALLS):
        asked = {"model": "any", "messages": messages, "tools": TOOLS}
        reply = await http.post(f"{base_url}/chat/completions", json=asked, headers={"Authorization": f"Bearer {key}"})
        message = reply.raise_for_status().json()["choices"][0]["message"]
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        for call in message["tool_calls"]:
            brought = workspace.use(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": brought})
    return ""
