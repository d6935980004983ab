"""`python -m services.scorer.once --scorer SPEC`: score answers from stdin, one task a line, with a scorer of choice.

A line is {"task_id", "prompt", "answers": [{"text", "finish_reason", "artifact", "usage"}], "reference", "criteria",
"task_type", "workspace"}. The first line out is the scorer's identity; then, in the order of the input, {"task_id",
"scores": [{"score", "status", …}]}. The first line says in `grades_references` whether a reference can be scored as an
answer. With --judging parts that score cost are left out, and it names them in `left_out`. It knows no queue: `ratchet
eval --scorer`, `ratchet try` and `ratchet verify` are its users.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ratchet.service.errors import FAULTS
from schemas.messages.base import Record
from schemas.messages.task import ChatMessage
from schemas.messages.workspace import Artifact, Workspace
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import check_spec, strategy_of
from services.scorer.strategies.strategy import Answer, ScoringRequest, Spent, Strategy, can_grade_references

AT_ONCE = 16
Given = TypeVar("Given", bound=Record)


async def score_all(strategy: Strategy, requests: Sequence[ScoringRequest]) -> list[dict[str, Any]]:
    """Identity first. Raises ScorerError where the strategy can't start."""
    await strategy.start()
    try:
        free = asyncio.Semaphore(AT_ONCE)

        async def score_line(request: ScoringRequest) -> dict[str, Any]:
            async with free:
                scores = await strategy.score(request)
            return {"task_id": request.task_id, "scores": [score.model_dump() for score in scores]}

        lines = await asyncio.gather(*map(score_line, requests))
        return [strategy.identity.model_dump(), *lines]
    finally:
        await strategy.stop()


def request_from(line: Mapping[str, Any]) -> ScoringRequest:
    answers = tuple(
        Answer(
            one["text"],
            one.get("finish_reason"),
            _parse_optional(Artifact, one.get("artifact")),
            _parse_usage(one.get("usage")),
        )
        for one in line["answers"]
    )
    prompt = line["prompt"]
    return ScoringRequest(
        task_id=line["task_id"],
        prompt=prompt if isinstance(prompt, str) else tuple(ChatMessage(**message) for message in prompt),
        answers=answers,
        reference=line.get("reference"),
        criteria=line.get("criteria"),
        task_type=line.get("task_type"),
        workspace=_parse_optional(Workspace, line.get("workspace")),
    )


def _parse_usage(usage: Mapping[str, Any] | None) -> Spent:
    return Spent(usage.get("sampled_tokens"), usage.get("seconds")) if usage else Spent()


def _parse_optional(kind: type[Given], value: Any) -> Given | None:
    return None if value is None else kind.model_validate(value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.scorer.once", description=__doc__)
    parser.add_argument("--scorer", required=True)
    parser.add_argument("--judging", action="store_true")
    asked = parser.parse_args()
    settings = ScorerSettings.read(scorer=asked.scorer)
    spec = check_spec(settings.scorer)
    kept = spec.judging if asked.judging else spec
    strategy = strategy_of(kept, settings)
    requests = [request_from(json.loads(line)) for line in sys.stdin if line.strip()]
    identity, *lines = asyncio.run(score_all(strategy, requests))
    identity["grades_references"] = can_grade_references(strategy)
    if asked.judging:
        identity["left_out"] = [part.text for part in spec.strategies if part.is_cost]
    for line in (identity, *lines):
        sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FAULTS as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
