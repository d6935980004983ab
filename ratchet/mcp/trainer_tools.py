"""The trainer's tools: start a training, and see how trainings go."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ratchet.mcp.call import Call, Follow
from ratchet.mcp.tool_table import Effect, ToolTable
from schemas.api.page import Page
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import AdapterVersion, AgentId, Identifier

LONGEST_WAIT_S = 3600
ENDED = Follow(frozenset({"trained", "refused", "failed"}))

TOOLS = ToolTable("trainer")


@TOOLS.tool("POST /v1/train", RunView, "Start a training", Effect.ADDS)
def start_training(
    agent_id: Annotated[AgentId, Field(description="The agent to train a new adapter for.")],
    algorithm: Annotated[
        Identifier | None, Field(description="grpo (if absent), weighted-sft, kto, … or a registered one.")
    ] = None,
    parent_version: Annotated[
        AdapterVersion | None, Field(description="Version to start from; the primary if absent.")
    ] = None,
    since: Annotated[int | None, Field(ge=0, description="First byte of the log of interactions to read.")] = None,
    hyperparameters: Annotated[
        dict[str, Any] | None, Field(description="Such as learning_rate or epochs; the trainer's own if absent.")
    ] = None,
    seed: Annotated[int | None, Field(ge=0, description="Equal seeds and data give equal adapters.")] = None,
    request_id: Annotated[
        Identifier | None, Field(description="Your own id: the same one again is not trained twice.")
    ] = None,
    wait_s: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for its end; 0 returns at once.")
    ] = 0.0,
) -> Call:
    """Train a new adapter from the log of scored answers. It takes minutes to hours; get_run shows how it goes. The
    trainer refuses, with the reason and the numbers, when the data can't support it. What was trained is then tried on
    a share of the live traffic, and takes over only when that proves it better.
    """
    body = {
        "agent_id": agent_id,
        "algorithm": algorithm,
        "parent_version": parent_version,
        "since": since,
        "hyperparameters": hyperparameters,
        "seed": seed,
        "request_id": request_id,
    }
    return Call(body=body, wait_s=wait_s, awaited="training", follow=ENDED)


@TOOLS.tool("GET /v1/runs/{run_id}", RunDetail, "Show a training run", Effect.READS)
def get_run(run_id: Annotated[Identifier, Field(description="From start_training or list_runs.")]) -> Call:
    """One training run, as the trainer has it: its state (queued, running, trained, refused, failed), progress,
    curves, and why it was refused.
    """
    return Call(path={"run_id": run_id})


@TOOLS.tool("GET /v1/runs", Page[RunView], "List training runs", Effect.READS)
def list_runs(
    agent_id: Annotated[AgentId | None, Field(description="Only this agent's.")] = None,
    state: Annotated[RunState | None, Field(description="Only in this state.")] = None,
    cursor: Annotated[str | None, Field(description="`next` of the page before, for the page after it.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Items on a page.")] = 20,
) -> Call:
    """The trainer's own list of runs, the newest first; list_trainings has the fleet's."""
    return Call(query={"agent_id": agent_id, "state": state, "cursor": cursor, "limit": limit})
