"""The knobs of a training run, each with a sentence and a unit; a run's request overrides the service's defaults.

Defaults suit a small model on a CPU and are sane for a big one on a GPU. How they are used is in the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from ratchet.logs.groups import DEFAULT_BASELINE, Baseline
from ratchet.runs.run import LEAST_GROUPS
from ratchet.service.errors import TrainingRefused
from schemas.messages.base import explain
from schemas.records.demonstration import DemonstrationSource
from services.trainer.algorithms.advantages import Scale

SMALL_MODEL = 200_000
SMALL_MODEL_RATE = 1e-3
LARGE_MODEL = 14_000_000_000
RATE, LARGE_MODEL_RATE = 1e-4, 5e-5
FEWEST_PASSES, MOST_PASSES = 2, 8
DEMONSTRATION_BATCH, DEMONSTRATION_PASSES, DEMONSTRATION_RATE = 4, 4, 2.0
"""The largest step, the most passes, and the rate over that of samples where demonstrations teach alone: QLoRA's table.

On SmolLM2 four passes at a larger rate came to half the held-out loss of eight passes (record 0078).
"""
GPU_TOKENS, CPU_TOKENS = 16_384, 2_048

Mixture = Literal["only", "first"]
Share = Annotated[float, Field(gt=0, le=1)]


def default_learning_rate(parameters: int) -> float:
    """1e-4 for models of 20 million to 14 billion parameters, 5e-5 above: half of what QLoRA's table has.

    That is table 9 of Dettmers et al. 2023 (arXiv:2305.14314), LoRA on all linear layers: 2e-4 for 7 and 13 billion,
    1e-4 for 33 and 65, in one pass over demonstrations; here an answer is passed over several times. Below, 1e-3 at 200
    thousand parameters, falling with the square root of the size (decision 0020).
    """
    if parameters > LARGE_MODEL:
        return LARGE_MODEL_RATE
    return min(SMALL_MODEL_RATE, max(RATE, SMALL_MODEL_RATE * math.sqrt(SMALL_MODEL / parameters)))


NO_DORA = (
    "DoRA is not offered: vLLM refuses an adapter that has it, so it could not be served; use lora_rslora, or a higher "
    "lora_rank"
)


class Hyperparameters(BaseModel):
    """The knobs that all algorithms share: which data, which steps, which LoRA, and when to refuse."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Passes over the samples; if not set, from 2 to 8, as many as make so many steps as `steps` says.",
    )
    steps: int = Field(128, ge=1, description="Steps a run should take at least; it counts where `epochs` is not set.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="AdamW's, at the start: it falls to 0 in a straight line; if not set, by the model's size, and "
        "twice that where demonstrations teach alone.",
    )
    batch: int = Field(32, ge=1, description="Samples per step, about.")
    micro_batch_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens through the model at once, padding included: what memory allows; if not set, 16,384 on a "
        "GPU and 2,048 on a CPU, whose caches hold no more.",
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's.")
    warm_up_steps: int = Field(0, ge=0, description="Steps of a linear start.")
    lora_rank: int = Field(16, ge=1, le=512, description="Of a first adapter; later ones have their parent's.")
    lora_alpha: float = Field(32.0, gt=0, description="Of a first adapter: its output is scaled by alpha / rank.")
    lora_rslora: bool = Field(
        False, description="Of a first adapter: scaled by alpha / sqrt(rank) instead (rsLoRA), for ranks above 32."
    )
    lora_targets: Literal["all-linear"] | list[str] = Field(
        "all-linear",
        description='Of a first adapter: the layers it adapts, by the last part of their names: ["q_proj"].',
    )
    gradient_checkpointing: bool | None = Field(
        None, description="Recompute activations to save memory; on a GPU only, if not set."
    )

    replay_share: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the prompts that are kept for the shadow replay and teach nothing; if not set, "
        "RATCHET_REPLAY_SHARE.",
    )
    min_groups: int = Field(LEAST_GROUPS, ge=1, description="Fewer useful groups are refused.")
    max_groups: int = Field(4096, ge=1, description="The newest so many groups are used.")
    min_samples: int = Field(2, ge=2, description="Usable samples a group must have.")
    max_versions_behind: int = Field(
        0, ge=0, description="How many promotions behind the parent the version that answered may be."
    )
    candidates: bool = Field(
        True,
        description="Learn also from what candidates made from such a version answered in experiments, where they are "
        "close enough to the parent.",
    )
    max_age_s: float | None = Field(None, gt=0, description="Groups that much older than the newest are not used.")
    truncated: Literal["drop", "keep"] = Field("drop", description="Answers that were cut at their length limit.")
    unscorable: Literal["worst", "drop"] = Field(
        "worst", description="Answers that the scorer says it can't score: as bad as can be, or left out."
    )
    score_noise: float = Field(
        0.0, ge=0, description="Known standard deviation of the scorer; groups that spread no wider are not used."
    )

    max_bad_share: Share = Field(0.01, description="More bad lines in the window than this share are refused.")
    max_gap: float = Field(
        0.05, gt=0, description="Mean difference, in nats a token, between logged and the parent's log-probabilities."
    )
    max_divergence: float = Field(
        0.1, gt=0, description="KL divergence of a version that answered from the parent, in nats a token."
    )
    min_effective_share: Share = Field(0.3, description="Least effective sample size, as a share of the tokens.")
    min_mean_weight: float = Field(0.5, gt=0, description="Least mean importance weight of a token.")
    max_mean_weight: float = Field(2.0, gt=0, description="Largest mean importance weight of a token.")

    stop_forgetting: float = Field(
        1.0,
        gt=0,
        description="A run ends, unpublished, when answers it is to learn have become unlikelier by so many nats a "
        "token.",
    )
    stop_entropy: float = Field(
        1.0, gt=0, description="And when its entropy has risen by so many nats a token since its first step."
    )
    stop_divergence: float = Field(
        20.0, gt=0, description="And when its KL divergence from the policy that wrote the log is so many nats a token."
    )

    @property
    def compared_with(self) -> Baseline:
        """The samples that one is compared with, where several programs made those of a group."""
        return "group"

    @property
    def taught_by(self) -> frozenset[DemonstrationSource]:
        """The demonstrations that it learns from: none, where the algorithm has no use for them."""
        return frozenset()

    @property
    def mixes(self) -> Mixture:
        """The way in which demonstrations and samples are learned from."""
        return "only"

    @property
    def needs_spread(self) -> bool:
        """Answers are compared with those of their group, so that equal scores teach nothing."""
        return True

    @property
    def holds_out(self) -> float:
        """Share of the groups that are looked at while it trains instead of taught: none, where it keeps to no plan."""
        return 0.0

    def passes(self, samples: int) -> int:
        """A small window needs more of them to come as far."""
        if self.epochs is not None:
            return self.epochs
        steps_per_pass = max(1, round(samples / self.batch))
        return min(MOST_PASSES, max(FEWEST_PASSES, math.ceil(self.steps / steps_per_pass)))

    def for_demonstrations(self, count: int) -> Self:
        """Return a copy with the batch and the passes of a supervised training on so many."""
        smaller = self.model_copy(update={"batch": min(self.batch, DEMONSTRATION_BATCH)})
        passes = self.epochs or min(DEMONSTRATION_PASSES, smaller.passes(count))
        return smaller.model_copy(update={"epochs": passes})

    def tokens_at_once(self, *, on_gpu: bool) -> int:
        """The largest micro-batch."""
        return self.micro_batch_tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS)

    @classmethod
    def read(cls, defaults: Mapping[str, JsonValue], given: Mapping[str, JsonValue]) -> Self:
        """Take the service's defaults that this algorithm knows, then what the request gives.

        Raises TrainingRefused naming the field.
        """
        if any(given.get(name) for name in ("dora", "lora_dora", "use_dora")):
            raise TrainingRefused(NO_DORA)
        known: dict[str, Any] = {name: value for name, value in defaults.items() if name in cls.model_fields}
        try:
            return cls.model_validate(known | dict(given))
        except ValidationError as error:
            raise TrainingRefused(
                f"the hyperparameters can't be used: {explain('set of hyperparameters', error)}; there are "
                f"{', '.join(cls.model_fields)}"
            ) from None


class WithDemonstrations(Hyperparameters):
    """The knobs of learners that can also be shown texts that are known to be good."""

    demonstrations: tuple[DemonstrationSource, ...] = Field(
        (),
        description="Which texts that are known to be good teach, where there are as many as `min_groups`; if not set, "
        "those of RATCHET_DEMONSTRATIONS.",
    )
    mixture: Mixture = Field("only", description="Those alone, or first and then the samples.")
    held_out_groups: float = Field(
        1 / 16,
        ge=0,
        le=0.5,
        description="Where groups teach alone, the share of them that is not taught, 8 at least, and says whether the "
        "training is of use: it ends when it is no more. 0: all teach, and it takes all its steps.",
    )

    @property
    def taught_by(self) -> frozenset[DemonstrationSource]:
        return frozenset(self.demonstrations)

    @property
    def mixes(self) -> Mixture:
        return self.mixture

    @property
    def holds_out(self) -> float:
        return self.held_out_groups


class WithBaseline(WithDemonstrations):
    """The knobs of learners by advantage."""

    baseline: Baseline = Field(
        DEFAULT_BASELINE,
        description="What a rollout is better or worse than: those of its own program in the group, or the whole "
        "group. It matters where several programs answer a task.",
    )

    @property
    def compared_with(self) -> Baseline:
        return self.baseline


Loss = Literal["dapo", "dr_grpo", "gspo", "cispo", "vespo"]
CLIPS = (0.2, 3.0)
GSPO_CLIPS = (3e-4, 4e-4)
"""Published values (Zheng et al. 2025): a whole answer's ratio, a mean over its tokens, moves less than a token's."""


class GrpoHyperparameters(WithBaseline):
    """On top of them, the knobs of the policy gradient."""

    loss: Loss = Field("dapo", description="dapo, dr_grpo, gspo, cispo or vespo.")
    clip_low: float | None = Field(
        None, gt=0, lt=1, description="The ratio is clipped at 1 minus this; if not set, 0.2, and 3e-4 for gspo."
    )
    clip_high: float | None = Field(None, gt=0, description="And at 1 plus this; if not set, 3.0, and 4e-4 for gspo.")
    negative_weight: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Weight of the answers that are worse than their group's mean; 1: that of the others.",
    )
    importance_cap: float = Field(
        4.0, gt=1, description="No token weighs more than this, whatever its ratio (truncated importance sampling)."
    )
    off_policy_mask: float | None = Field(
        None,
        gt=0,
        description="Worse answers that have become unlikelier than when they were sampled, by more nats a token than "
        "this, teach no more; if not set, all do.",
    )
    beta: float = Field(0.0, ge=0, description="Weight of the KL divergence from the reference policy.")
    kl_to: Literal["parent", "base"] = Field("parent", description="The reference policy: the parent, or no adapter.")
    scale: Scale = Field(
        "none", description="Advantages as they are (none), or over the deviation of their group (group), as in DAPO."
    )
    cast_lm_head_to_fp32: bool = Field(
        False,
        description="Project on the vocabulary in float32 where the weights have 16 bits (ScaleRL); not with FSDP.",
    )

    @model_validator(mode="after")
    def _clips_of_the_loss(self) -> Self:
        low, high = GSPO_CLIPS if self.loss == "gspo" else CLIPS
        object.__setattr__(self, "clip_low", self.clip_low or low)
        object.__setattr__(self, "clip_high", self.clip_high or high)
        return self


class MaskedGrpoHyperparameters(GrpoHyperparameters):
    """Published values (DeepSeek-V3.2, arXiv:2512.02556): the mask, not a small weight, bounds what is pushed down."""

    negative_weight: float = Field(1.0, ge=0, le=1, description="Weight of answers worse than their group's mean.")
    off_policy_mask: float | None = Field(
        0.5, gt=0, description="Worse answers that have become unlikelier by more nats a token teach no more."
    )


class KtoHyperparameters(Hyperparameters):
    """Each answer is good or bad by itself, as a thumb up or down says; it needs no other to be compared with."""

    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Answers with this score or a better one are good, others bad; if not set, those above their "
        "group's mean are good, those below it bad.",
    )
    beta: float = Field(0.1, gt=0, description="How dear it is to leave the parent.")
    min_samples: int = Field(1, ge=1, description="Usable samples a group must have.")

    @property
    def needs_spread(self) -> bool:
        return self.threshold is None
