"""Every algorithm that is registered learns from the same log, through the same run: what scores becomes likelier."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ratchet.models.loading import content_sha256
from ratchet.runs.store import RunStore
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run
from tests.services.trainer.making_logs import line, write_log
from tests.services.trainer.run.test_training_run import folder, train
from tests.services.trainer.tiny_policy import LONGEST, loaded

GROUPS, EACH = 16, 12
LIKED = 12
KNOBS = {"epochs": 4, "learning_rate": 0.003}
LEARNERS: Mapping[str, dict[str, Any]] = {
    "grpo": {},
    "masked-grpo": {},
    "weighted-sft": {},
    "best-of-group-sft": {"batch": 4},
    "kto": {},
}


@dataclass(frozen=True)
class Lesson:
    """A log by the base model in which `liked` tokens score, and after which beginnings the policy is looked at."""

    logs: Path
    liked: list[int]
    beginnings: torch.Tensor

    @torch.no_grad()
    def expected(self, base_model: Path, adapter: Path | None) -> float:
        """Probability of a liked token, exactly."""
        logits = loaded(base_model, adapter)(input_ids=self.beginnings).logits[:, -1]
        return float(torch.softmax(logits, -1)[:, self.liked].sum(-1).mean())


@pytest.fixture(scope="session")
def lesson(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    rng = random.Random(1)
    prompts = [[rng.randrange(256) for _ in range(4)] for _ in range(GROUPS)]
    ids, logprobs = answers(base_model, [prompt for prompt in prompts for _ in range(EACH)])
    liked = [token for token, _ in Counter(ids[:, 4:].flatten().tolist()).most_common(LIKED)]
    lines = [
        line(
            f"t{row // EACH}",
            row % EACH,
            response=str(row),
            score=sum(token in liked for token in ids[row, 4:].tolist()) / LONGEST,
            prompt_ids=tuple(prompts[row // EACH]),
            completion_ids=tuple(ids[row, 4:].tolist()),
            logprobs=tuple(logprobs[row].tolist()),
            engine=f"transformers model@{content_sha256(base_model)[:12]}",
            group_size=EACH,
        )
        for row in range(len(ids))
    ]
    return Lesson(write_log(tmp_path_factory.mktemp("lesson"), lines), liked, ids[:, :6])


@torch.no_grad()
def answers(base_model: Path, prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts with six tokens each behind them, and the log-probabilities of those."""
    torch.manual_seed(1)
    model, ids, logprobs = loaded(base_model, None), torch.tensor(prompts), []
    for _ in range(LONGEST):
        distribution = torch.log_softmax(model(input_ids=ids).logits[:, -1], -1)
        token = torch.multinomial(distribution.exp(), 1)
        ids = torch.cat([ids, token], dim=1)
        logprobs.append(distribution.gather(1, token))
    return ids, torch.cat(logprobs, dim=1)


def learned(settings: TrainerSettings, lesson: Lesson, **asked: Any) -> tuple[Path, list[dict[str, float]]]:
    """The adapter, and the figures of its steps."""
    outcome = train(settings.model_copy(update={"logs_dir": lesson.logs}), **asked)
    assert outcome.status == "trained", outcome.reason
    home = folder(settings, outcome)
    return home, json.loads((home / "training_report.json").read_text())["steps"]


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_what_scores_is_likelier_after_a_run(
    settings: TrainerSettings, base_model: Path, lesson: Lesson, algorithm: str
) -> None:
    adapter, steps = learned(settings, lesson, algorithm=algorithm, hyperparameters=KNOBS | LEARNERS[algorithm])

    assert {"loss", "reward", "gap", "divergence", "good_log_ratio", "effective_share", "entropy"} <= steps[-1].keys()
    assert steps[0]["good_log_ratio"] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["good_log_ratio"] > 0.1
    assert lesson.expected(base_model, adapter) > 1.15 * lesson.expected(base_model, None)


def test_gspo_as_published_takes_small_steps_in_the_right_direction(
    settings: TrainerSettings, base_model: Path, lesson: Lesson
) -> None:
    adapter, steps = learned(settings, lesson, hyperparameters=KNOBS | {"loss": "gspo"})

    assert steps[-1]["clip_fraction"] > 0.1
    assert lesson.expected(base_model, adapter) > 1.05 * lesson.expected(base_model, None)


class PowerCutError(Exception):
    """In the middle of a run."""


def test_a_run_that_was_cut_short_ends_with_the_bytes_of_one_that_was_not(settings: TrainerSettings) -> None:
    settings = settings.model_copy(update={"trainer_checkpoint_every_s": 0.0})
    jobs = RunStore(settings.adapters_dir)
    knobs = {"epochs": 1, "batch": 12, "micro_batch_tokens": 120}
    whole, cut = (
        jobs.record(TrainRequest(request_id=name, agent_id="small", algorithm="kto", hyperparameters=knobs))
        for name in ("whole", "cut")
    )

    def cut_at_step_four(said: Mapping[str, Any]) -> None:
        if said.get("step") == 4:
            raise PowerCutError

    expected: AdapterTrained | None = do_run(settings, whole, lambda said: None)
    with pytest.raises(PowerCutError):
        do_run(settings, cut, cut_at_step_four)
    told: list[Mapping[str, Any]] = []
    outcome = do_run(settings, cut, told.append)

    assert outcome is not None and expected is not None and outcome.status == "trained", outcome
    assert outcome.adapter_sha256 == expected.adapter_sha256
    assert next(said["step"] for said in told if said["stage"] == "training") == 3
