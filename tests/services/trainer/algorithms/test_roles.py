"""A team's log on the tiny model: each role learns from what it sampled itself, by the outcome of the whole rollout."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.messages.response import RoleUsage, Segment, Usage
from schemas.messages.work import Arm, RoleVersion
from services.trainer.algorithms.grpo import Grpo, advantage_targets
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.samples import TrainingSample, load_samples
from services.trainer.data.selection import Selection, select
from tests.services.trainer.algorithms.catching import assert_same, gradients_of
from tests.services.trainer.algorithms.test_conversations import gradient
from tests.services.trainer.making_logs import line, write_log
from tests.services.trainer.tiny_policy import sampled, tiny_lora

GROUPS = (2, 3)
AGENTS = {"writer": "small", "mender": "critic"}
ROLES = {
    "writer": RoleVersion(agent_id="small", adapter_version="v1.0.0"),
    "mender": RoleVersion(agent_id="critic", adapter_version="v1.0.4", adapter_sha256="b" * 64),
}
UNSET = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs", "finish_reason"))


def segment(role: str, prompt: list[int], said: Sequence[Any], by: float) -> Segment:
    """`by`: how far the logged log-probabilities are from the policy's, so that ratios are not 1."""
    ids, logprobs = said
    told = tuple(value + by for value in logprobs)
    return Segment(
        prompt_ids=tuple(prompt), completion_ids=tuple(ids), spans=((0, len(ids)),), logprobs=told, role=role
    )


def team_line(policy: Any, group: int, number: int, rng: random.Random, *, writer_by: float = 0.1) -> bytes:
    """The writer answers, and the mender answers what the writer wrote; in the last rollout of a group of three it is
    not called."""
    asked = [group + 3, 65, 66]
    written = sampled(policy, [asked], 1, seed=rng.randrange(999))[0][0]
    shown = [*asked, *written[0], 67]
    mended = sampled(policy, [shown], 1, seed=rng.randrange(999))[0][0]
    segments = [segment("writer", asked, written, writer_by), segment("mender", shown, mended, -0.1)]
    segments = segments[: 1 if number == 2 else 2]
    roles = {
        str(one.role): RoleUsage(adapter_version="v1.0.0", calls=1, sampled_tokens=one.sampled_tokens)
        for one in segments
    }
    return line(
        f"t{group}",
        number,
        score=(0.2, 0.9, 0.4)[number],
        group_size=GROUPS[group],
        response=str(number),
        arm=Arm(sequence=group, roles=ROLES),
        segments=tuple(segments),
        usage=Usage(calls=len(segments), roles=roles),
        program="pair",
        **UNSET,
    )


def log_of(base_model: Path, folder: Path, *, writer_by: float = 0.1) -> Path:
    policy, rng = tiny_lora(base_model), random.Random(7)
    numbers = [(group, number) for group, size in enumerate(GROUPS) for number in range(size)]
    return write_log(folder, [team_line(policy, *one, rng, writer_by=writer_by) for one in numbers])


def selected(logs: Path, role: str) -> Selection:
    played = ROLES[role]
    policy = DataPolicy(
        agent_id=AGENTS[role], versions={played.adapter_version: played.adapter_sha256}, baseline="program"
    )
    return select(JournalScan(logs, policy).read(0, None), policy)


def samples_of(logs: Path, role: str) -> list[TrainingSample]:
    return load_samples(logs, selected(logs, role).groups)


def gradient_of(base_model: Path, folder: Path, samples: list[TrainingSample]) -> dict[str, torch.Tensor]:
    return gradient(base_model, folder, samples, Grpo(), GrpoHyperparameters(clip_low=0.2, clip_high=0.28), 10_000)


@pytest.mark.parametrize(("role", "rollouts"), [("writer", [2, 3]), ("mender", [2, 2])])
def test_a_role_is_trained_on_its_own_tokens_by_the_outcome_among_the_rollouts_that_called_it(
    base_model: Path, tmp_path: Path, role: str, rollouts: list[int]
) -> None:
    samples = samples_of(log_of(base_model, tmp_path / "log"), role)

    found = gradient_of(base_model, tmp_path / "run", samples)

    scores = [[one.score for one in samples if one.group == group] for group in range(len(GROUPS))]
    assert [len(one) for one in scores] == rollouts
    assert {one.version for one in samples} == {ROLES[role].adapter_version}
    # by hand: the clipped objective over the tokens that the role sampled, and over no others
    knobs, policy = GrpoHyperparameters(clip_low=0.2, clip_high=0.28), tiny_lora(base_model)
    weights = advantage_targets(scores, knobs.scale, knobs.negative_weight).weights
    losses = []
    for sample, weight in zip(samples, weights, strict=True):
        logits = policy(input_ids=torch.tensor([[*sample.prompt, *sample.completion]])).logits
        new = torch.log_softmax(logits[0, len(sample.prompt) - 1 : -1], -1)
        new = new.gather(1, torch.tensor(list(sample.completion))[:, None])[:, 0]
        ratio = (new - torch.tensor(sample.logprobs)).exp()
        losses.append(-torch.minimum(ratio.clamp(max=4.0) * weight, ratio.clamp(0.8, 1.28) * weight).sum())
    (torch.stack(losses).sum() / sum(sample.tokens for sample in samples)).backward()  # type: ignore[no-untyped-call]
    assert_same(found, gradients_of(policy))


def test_what_a_partner_sampled_has_no_gradient_whatever_its_log_probabilities_were(
    base_model: Path, tmp_path: Path
) -> None:
    mended = [
        gradient_of(
            base_model,
            tmp_path / f"run-{by}",
            samples_of(log_of(base_model, tmp_path / f"log-{by}", writer_by=by), "mender"),
        )
        for by in (0.1, -0.4)
    ]

    assert all(torch.equal(mended[0][name], mended[1][name]) for name in mended[0])


def test_rollouts_that_did_not_call_a_role_and_other_versions_of_it_are_left_out_and_counted(
    base_model: Path, tmp_path: Path
) -> None:
    logs = log_of(base_model, tmp_path / "log")

    assert selected(logs, "mender").counts["samples.not_called"] == 1
    older = DataPolicy(agent_id="critic", versions={"v1.0.3": None})
    assert select(JournalScan(logs, older).read(0, None), older).counts["groups.other_version"] == 2
