"""Answers as the agent samples them, by its own engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ratchet.models.loading import load_language_model
from schemas.messages.task import Prompt
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.transformers_engine import TransformersEngine

ADAPTER = "learner"


def sample_answers(
    model: str,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    seed: int,
    adapter: Path | None = None,
    at_once: int = 256,
) -> tuple[list[Generation], str]:
    """Return the answers to each prompt, and the name of the engine that gave them. Raises RuntimeError."""
    engine = TransformersEngine(partial(load_language_model, model, dtype="float32"), seed=seed, max_batch=at_once)
    engine.start()
    if adapter is not None:
        engine.load_adapter(ADAPTER, adapter)
    name = ADAPTER if adapter else None
    given = engine.generate([GenerationRequest(prompt, sampling, name) for prompt in prompts])
    answers = [one for one in given if isinstance(one, Generation)]
    if len(answers) < len(prompts):
        raise RuntimeError(f"{len(prompts) - len(answers)} of {len(prompts)} tasks were not answered")
    return answers, engine.identity
