"""The ends of a run whose policy runs away.

A policy that forgets the answers it is to learn, babbles, or has left the log far behind is worth no experiment, and
the steps just before it was found out are no better founded: what to do is train again, with a lower learning rate or
fewer passes. The limits are wide: a run that learns well comes nowhere near them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

from ratchet.service.errors import TrainingRefused


class RanAway(TrainingRefused):
    """The policy did, at the step that is named."""


@dataclass(frozen=True, slots=True)
class Stops:
    """Limits in nats a token: see the hyperparameters of the same names."""

    forgetting: float
    entropy: float
    divergence: float

    def reason(self, figures: Mapping[str, float], first: Mapping[str, float]) -> str | None:
        """Say why a run ends with the step of these figures, or None. `first`: those of its first step."""
        if not all(math.isfinite(figures.get(name, 0.0)) for name in ("loss", "grad_norm")):
            return f"the loss became {figures.get('loss')}, the gradient {figures.get('grad_norm')}"
        if (change := figures.get("good_log_ratio", 0.0)) < -self.forgetting:
            return (
                f"the answers it was to learn have become unlikelier by {-change:.2f} nats a token "
                f"(stop_forgetting is {self.forgetting:g})"
            )
        risen = figures.get("entropy", 0.0) - first.get("entropy", math.inf)
        if risen > self.entropy:
            return f"the entropy has risen by {risen:.2f} nats a token (stop_entropy is {self.entropy:g})"
        if (divergence := figures.get("divergence", 0.0)) > self.divergence:
            return (
                f"the policy is {divergence:.1f} nats a token from the one that wrote the log "
                f"(stop_divergence is {self.divergence:g})"
            )
        return None


class RunAwayStops(TrainerCallback):  # type: ignore[misc]
    """Ends the run in all processes: what it looks at is the whole step's in each."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **given: Any) -> None:
        """Raises RanAway."""
        if "loss" not in logs:
            return
        first = next((entry for entry in state.log_history if "loss" in entry), logs)
        if (reason := self._stops.reason(logs, first)) is not None:
            raise RanAway(
                f"stopped at step {state.global_step} of {state.max_steps}, and nothing was published: {reason}; train "
                f"with a lower learning rate or fewer passes"
            )
