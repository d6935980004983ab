"""Prompts: what to look at, in which order, for the questions that people who run a fleet have most often."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import Field


def why_rolled_back(
    agent_id: Annotated[str, Field(description="The agent, such as small.")],
    version: Annotated[str, Field(description="The adapter version, such as v1.0.2.")],
) -> str:
    """Explain why an adapter was rolled back or rejected, from the evidence of the decision."""
    return f"""Why was adapter {version} of agent {agent_id} rolled back (or rejected)?

1. show_adapter: in its decisions, the newest first, find the move away from traffic: who made it, on what evidence.
2. experiment_status of the experiment that the decision names: which metric was harmed (score, success, length or
   latency; an e-value at the plan's roll_back_at rolls back), by how much, over how many units of each arm, and how the
   band moved.
3. list_tasks, then get_task for two or three tasks that this version answered badly: what did the scorer say of them?
4. Its card and training curves: was the data window narrow, the reward flat, the loss unusual?

Answer in five sentences: what happened, the evidence in numbers, what probably caused it, whether the fleet decided
rightly, and what to change before the next training. Say what you could not see. Change nothing."""


def investigate_task(task_id: Annotated[str, Field(description="The task's id.")]) -> str:
    """Find out what became of one task, and why the answer is as it is."""
    return f"""What became of task {task_id}, and why?

1. get_task: its state, the hops with their seconds, every sample with its score and reason, the arm it was assigned.
2. If it is open: which hop has it now? queues shows whether messages wait there and whether anyone consumes them.
3. If it failed or expired: the result's reason; list_dead_letters for a message about it.
4. If it was answered badly: compare the chosen sample with the others; show_adapter of its version; was it a candidate?

Answer with a short timeline, the cause, and one proposal. Change nothing without being asked."""


def morning_check() -> str:
    """A look over the whole fleet, as at the start of a day."""
    return """Check the fleet and report as you would to the person who runs it.

1. fleet_status: is it ready? Tasks open and the oldest of them, failures and expiries, seconds at each stage, scores.
2. queues: does anything pile up, or wait where nobody consumes?
3. list_dead_letters: group them by reason.
4. list_adapters: what became primary, was rolled back, or is frozen since yesterday? experiment_status of each running
   experiment: how far is it, is it heading anywhere, is there harm?
5. list_trainings: what was trained, refused or failed, and why?

Report: one line for the whole (all well, or the worst thing); then only what deserves attention, the most urgent first,
each with its number and the next step. Propose changes (promote, rollback, freeze, requeue_dead_letters); make none."""


def judge_candidate(agent_id: Annotated[str, Field(description="The agent, such as small.")]) -> str:
    """Judge whether to step in on the adapter that is being tried now."""
    return f"""Agent {agent_id} is trying a candidate adapter. Should a person step in?

1. list_adapters: the candidate, its parent, and its experiment.
2. experiment_status: gain and harm e-values (the plan's promote_at and roll_back_at decide), units per arm, the share,
   the band, what is still missing.
3. show_adapter of the candidate and of the primary: what was it trained on, how did its curves look?

The fleet promotes only on proof and rolls harm back by itself, so the default is to wait. Argue for promote, rollback
or freeze only with a number that supports it. Recommend one of: wait, promote, rollback, freeze. Change nothing."""


PROMPTS = (morning_check, investigate_task, why_rolled_back, judge_candidate)


def add_prompts(server: MCPServer[Any]) -> None:
    for prompt in PROMPTS:
        server.prompt(title=prompt.__name__.replace("_", " ").capitalize())(prompt)
