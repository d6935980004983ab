"""An agent of smolagents: `python smol_agent.py CodeAgent|ToolCallingAgent whole|stream [linear]`.

`linear`: it forgets its own account of each call, which it would add to what the model said.
"""

import os
import sys
from pathlib import Path

import smolagents


@smolagents.tool
def read_file(path: str) -> str:
    """What is in a file.

    Args:
        path: Its name.
    """
    return Path(path).read_text()


@smolagents.tool
def write_file(path: str, text: str) -> str:
    """Writes a file anew.

    Args:
        path: Its name.
        text: What shall be in it.
    """
    Path(path).write_text(text)
    return f"{len(text)} characters are in {path}"


def forget_account(step: smolagents.ActionStep) -> None:
    step.tool_calls = None


model = smolagents.OpenAIModel(
    model_id="any", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
)
kind = getattr(smolagents, sys.argv[1])
agent = kind(
    tools=[read_file, write_file],
    model=model,
    stream_outputs=sys.argv[2] == "stream",
    step_callbacks=[forget_account] if "linear" in sys.argv else None,
    verbosity_level=0,
)
said = agent.run("Add what a.txt and b.txt hold, and write the sum to c.txt.")
sys.stdout.write(str(said))
