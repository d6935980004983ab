"""An agent of the OpenAI Agents SDK: `python openai_agent.py responses|chat_completions whole|stream`."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, function_tool, set_default_openai_api

API, STREAM = sys.argv[1], sys.argv[2] == "stream"
if API != "responses":
    set_default_openai_api(API)


@function_tool
def read_file(path: str) -> str:
    """What is in a file.

    Args:
        path: Its name.
    """
    return Path(path).read_text()


@function_tool
def write_file(path: str, text: str) -> str:
    """Writes a file anew.

    Args:
        path: Its name.
        text: What shall be in it.
    """
    Path(path).write_text(text)
    return f"{len(text)} characters are in {path}"


async def main() -> None:
    agent = Agent(name="Adder", instructions="You add numbers in files.", tools=[read_file, write_file])
    task = "Add what a.txt and b.txt hold, and write the sum to c.txt."
    if not STREAM:
        result = await Runner.run(agent, task)
    else:
        result = Runner.run_streamed(agent, task)
        async for _ in result.stream_events():
            pass
    sys.stdout.write(str(result.final_output))


asyncio.run(main())
