"""The scorer's tool: score given answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_core import to_jsonable_python

from ratchet.mcp.call import Call, prompt_json
from ratchet.mcp.tool_table import Effect, ToolTable
from schemas.api.score import ScoreAnswer
from schemas.messages.base import Identifier
from schemas.messages.response import Usage
from schemas.messages.task import Prompt

SCORE_S = 120.0

TOOLS = ToolTable("scorer")


@TOOLS.tool("POST /v1/score", ScoreAnswer, "Score answers", Effect.READS)
def score(
    input: Annotated[
        Prompt, Field(description="What was asked: text, or a list of chat messages with role and content.")
    ],
    responses: Annotated[list[str], Field(min_length=1, max_length=64, description="The answers to score.")],
    reference: Annotated[str | None, Field(description="The right answer, for scorers that verify.")] = None,
    criteria: Annotated[str | None, Field(description="What a good answer is, for scorers that judge.")] = None,
    task_type: Annotated[Identifier | None, Field(description="The kind of task, where scoring depends on it.")] = None,
    usages: Annotated[
        list[Usage | None] | None,
        Field(min_length=1, max_length=64, description="What each of the answers took, for scorers of cost."),
    ] = None,
) -> Call:
    """Score answers as the fleet would: from 0 to 1 each, with a status and a reason. A null score means that it
    could not be scored, not that it is bad. Nothing is logged.
    """
    body = {
        "input": prompt_json(input),
        "responses": responses,
        "reference": reference,
        "criteria": criteria,
        "task_type": task_type,
        "usages": to_jsonable_python(usages),
    }
    return Call(body=body, wait_s=SCORE_S, awaited="the scorer is scoring")
