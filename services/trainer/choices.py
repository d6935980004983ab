"""A training request with every choice made and every default filled in, so that a run can be taken up unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from schemas.messages.base import BaseModelIdentity
from schemas.messages.train_request import TrainRequest
from schemas.records.registry import AgentAdapters
from services.trainer.algorithm import Algorithm, find_algorithm
from services.trainer.eligible_versions import eligible_versions
from services.trainer.filters import DataPolicy
from services.trainer.hyperparameters import Hyperparameters
from services.trainer.support import Limits


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


def resolved(request: TrainRequest, agent: AgentAdapters, defaults: Mapping[str, JsonValue]) -> TrainRequest:
    """With its parent and all its hyperparameters. Raises TrainingRefused."""
    hyperparameters = find_algorithm(request.algorithm).hyperparameters.read(defaults, request.hyperparameters)
    return request.model_copy(
        update={
            "parent_version": request.parent_version or agent.primary,
            "hyperparameters": hyperparameters.model_dump(mode="json"),
        }
    )


def choices_of(request: TrainRequest, agent: AgentAdapters, base: BaseModelIdentity) -> Choices:
    """Of a resolved request. Raises TrainingRefused."""
    algorithm = find_algorithm(request.algorithm)
    knobs = algorithm.hyperparameters.read({}, request.hyperparameters)
    parent = request.parent_version or agent.primary
    data = DataPolicy(
        agent_id=request.agent_id,
        versions=eligible_versions(agent, parent, knobs.max_versions_behind),
        base_revision=base.revision,
        min_samples=knobs.min_samples,
        truncated=knobs.truncated,
        score_noise=knobs.score_noise,
        max_age_s=knobs.max_age_s,
        max_groups=knobs.max_groups,
    )
    limits = Limits(
        min_groups=knobs.min_groups,
        max_bad_share=knobs.max_bad_share,
        max_gap=knobs.max_gap,
        min_effective_share=knobs.min_effective_share,
        weight_range=(knobs.min_mean_weight, knobs.max_mean_weight),
    )
    return Choices(request, parent, base, algorithm, knobs, data, limits)
