"""What is typed after `ratchet train --queue` as a request to the fleet's trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.cli.terminal import UsageError
from services.cli.train.request import TrainOptions, request_of

PLAIN = TrainOptions(
    agent="small",
    algorithm="grpo",
    parent=None,
    since=0,
    loss=None,
    epochs=None,
    lr=None,
    seed=3,
    assignments=(),
)


def test_what_is_not_typed_is_left_to_the_trainer() -> None:
    request = request_of(PLAIN)

    assert (request.agent_id, request.algorithm, request.seed) == ("small", "grpo", 3)
    assert request.parent_version is None
    assert request.hyperparameters == {}


def test_hyperparameters_are_json_or_text() -> None:
    typed = replace(PLAIN, loss="gspo", lr=0.002, assignments=("beta=0.1", "truncated=keep", "score_noise=null"))

    assert request_of(typed).hyperparameters == {
        "loss": "gspo",
        "learning_rate": 0.002,
        "beta": 0.1,
        "truncated": "keep",
        "score_noise": None,
    }


def test_each_request_has_an_id_of_its_own() -> None:
    assert request_of(PLAIN).request_id != request_of(PLAIN).request_id


@pytest.mark.parametrize("change", [{"parent": "1.0.1"}, {"agent": "no such/agent"}, {"assignments": ("beta",)}])
def test_what_can_t_be_is_a_sentence(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        request_of(replace(PLAIN, **change))  # type: ignore[arg-type]
