"""A training request with every choice made and every default filled in, so that a run can be taken up unchanged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from ratchet.logs.tenants import tenant_of
from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import TrainingRefused
from schemas.messages.base import BaseModelIdentity
from schemas.messages.training import TrainRequest
from schemas.messages.work import BASE_VERSION
from schemas.records.registry import AgentAdapters
from services.trainer.algorithms.algorithm import Algorithm
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.data.filters import DataPolicy
from services.trainer.data.support import Limits
from services.trainer.run.progress import Stops
from services.trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Choices:
    """`parent` is the version training starts from."""

    request: TrainRequest
    parent: str
    base: BaseModelIdentity
    algorithm: Algorithm
    hyperparameters: Hyperparameters
    data: DataPolicy
    limits: Limits
    stops: Stops


def resolve(request: TrainRequest, agent: AgentAdapters, defaults: Mapping[str, JsonValue]) -> TrainRequest:
    """Return the request with its parent and all its hyperparameters. Raises TrainingRefused."""
    hyperparameters = find_algorithm(request.algorithm).hyperparameters.read(defaults, request.hyperparameters)
    return request.model_copy(
        update={
            "parent_version": request.parent_version or agent.primary,
            "hyperparameters": hyperparameters.model_dump(mode="json"),
        }
    )


def make_choices(request: TrainRequest, agent: AgentAdapters, base: BaseModelIdentity) -> Choices:
    """Return all choices of a resolved request. Raises TrainingRefused."""
    algorithm = find_algorithm(request.algorithm)
    knobs = algorithm.hyperparameters.read({}, request.hyperparameters)
    parent = request.parent_version or agent.primary
    data = DataPolicy(
        agent_id=request.agent_id,
        versions=eligible_versions(agent, parent, knobs.max_versions_behind, candidates=knobs.candidates),
        base_revision=base.revision,
        min_samples=knobs.min_samples,
        needs_spread=knobs.needs_spread,
        baseline=knobs.compared_with,
        truncated=knobs.truncated,
        unscorable=knobs.unscorable,
        score_noise=knobs.score_noise,
        max_age_s=knobs.max_age_s,
        max_groups=knobs.max_groups,
        sources=knobs.taught_by,
        replay_share=0.0 if request.research_agent else knobs.replay_share,  # it is no candidate, so it has no replay
        research=(request.research_agent, tenant_of(request.request_id)) if request.research_agent else None,
    )
    limits = Limits(
        min_groups=knobs.min_groups,
        max_bad_share=knobs.max_bad_share,
        max_gap=knobs.max_gap,
        min_effective_share=knobs.min_effective_share,
        weight_range=(knobs.min_mean_weight, knobs.max_mean_weight),
        max_divergence=knobs.max_divergence,
    )
    stops = Stops(forgetting=knobs.stop_forgetting, entropy=knobs.stop_entropy, divergence=knobs.stop_divergence)
    return Choices(request, parent, base, algorithm, knobs, data, limits, stops)


def eligible_versions(
    agent: AgentAdapters, parent: str, versions_behind: int, *, candidates: bool = False
) -> dict[str, str | None]:
    """The adapter versions a run may learn from: the parent, and as many promotions behind it as asked.

    With `candidates` also those made from any of them, whose answers are half of an experiment's traffic; whether they
    are close enough is seen later, from their samples. Each with the sha256 of its weights, None for the base model.
    Raises TrainingRefused for an unknown parent.
    """
    found: dict[str, str | None] = {}
    version: str | None = parent
    while version is not None and version not in found and len(found) <= versions_behind:
        entry = agent.versions.get(version)
        if entry is None:
            raise TrainingRefused(f"there is no version {version} in the registry: train from one that is there")
        found[version] = entry.sha256
        version = None if version == BASE_VERSION else entry.parent or BASE_VERSION
    made_from = {name: entry.sha256 for name, entry in agent.versions.items() if candidates and entry.parent in found}
    return made_from | found


WHAT_INSTEAD = (
    "FSDP spreads the base model the same way: distributed_type FSDP in the file, or RATCHET_TRAINER_FSDP=true"
)


def is_spread(settings: TrainerSettings) -> bool:
    """Return whether the base model is to be spread over the processes. Raises TrainingRefused for what can't be done.

    Under FSDP Transformers spreads the base model while it loads it, so no process ever holds all of it. The adapter is
    small and whole in each process, and its gradients are averaged: it is saved and resumed as on one GPU.
    """
    if _is_switched_on("ACCELERATE_USE_DEEPSPEED"):
        raise TrainingRefused(f"the trainer does not run under DeepSpeed (ZeRO): {WHAT_INSTEAD}")
    if _is_switched_on("ACCELERATE_USE_MEGATRON_LM"):
        raise TrainingRefused(f"the trainer does not run under Megatron-LM: {WHAT_INSTEAD}")
    spread = _is_switched_on("ACCELERATE_USE_FSDP")
    if spread and _is_switched_on("FSDP_OFFLOAD_PARAMS"):
        raise TrainingRefused(
            "weights that wait in main memory (fsdp_offload_params) are not supported: take more processes, or one "
            "with RATCHET_TRAINER_WEIGHTS=4bit"
        )
    if spread and settings.trainer_weights != "full":
        raise TrainingRefused(
            "weights in 4 bits can't be spread over processes: leave out FSDP or RATCHET_TRAINER_WEIGHTS=4bit"
        )
    os.environ["ACCELERATE_USE_FSDP"] = "false"  # or Accelerate would spread the model a second time
    return spread


def _is_switched_on(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1")


ALGORITHMS = EntryPoints("ratchet.algorithms", "algorithm", TrainingRefused, "trainer")


def find_algorithm(name: str) -> Algorithm:
    """Raises TrainingRefused if there is none of that name, or it can't be loaded."""
    algorithm: Algorithm = ALGORITHMS.load(name)()
    return algorithm
