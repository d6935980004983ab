"""The parts that each agent of the fleet has to itself."""

from __future__ import annotations

from typing import NamedTuple

from services.orchestrator.promotion.anchors import Anchors
from services.orchestrator.promotion.promoter import Promoter
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples


class AgentParts(NamedTuple):
    """`promoter`: with the agent's arms, replicas and trainings."""

    promoter: Promoter
    anchors: Anchors
    samples: AdaptiveSamples
