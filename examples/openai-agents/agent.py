"""An agent of the OpenAI Agents SDK that works by the tools of Ratchet, which it starts beside itself and talks MCP to.

The task is on stdin, what it prints is its answer; the model is found by OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import asyncio
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, create_static_tool_filter

SERVER = {"command": "/ratchet/environment/bin/python", "args": ["-I", "/ratchet/run.py", "serve"]}
TOOLS = ["file_list", "file_read", "file_replace", "file_write", "test_run"]
INSTRUCTIONS = "You work in a workspace with tools. Look before you change anything, and check what you did."


async def main() -> None:
    set_tracing_disabled(True)
    offered = create_static_tool_filter(allowed_tool_names=TOOLS)
    async with MCPServerStdio(params=SERVER, client_session_timeout_seconds=120, tool_filter=offered) as tools:
        agent = Agent(name="Mender", instructions=INSTRUCTIONS, mcp_servers=[tools])
        result = Runner.run_streamed(agent, sys.stdin.read(), max_turns=20)
        async for _ in result.stream_events():
            pass
    sys.stdout.write(f"{result.final_output}\n")


asyncio.run(main())
