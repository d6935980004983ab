"""What is typed after `ratchet train --queue` as a request to the fleet's trainer."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.messages.training import TrainRequest
from services.cli.terminal import UsageError
from services.cli.train.run import build_request, parse_hyperparameters


def request(**typed: Any) -> TrainRequest:
    plain = {"agent": "small", "algorithm": "grpo", "parent": None, "since": 0, "seed": 3, "hyperparameters": {}}
    return build_request(**plain | typed)


def test_what_is_not_typed_is_left_to_the_trainer() -> None:
    asked = request(hyperparameters=parse_hyperparameters(None, None, None, ()))

    assert (asked.agent_id, asked.algorithm, asked.seed) == ("small", "grpo", 3)
    assert asked.parent_version is None
    assert asked.hyperparameters == {}


def test_hyperparameters_are_json_or_text() -> None:
    typed = parse_hyperparameters("gspo", None, 0.002, ("beta=0.1", "truncated=keep", "score_noise=null"))

    assert typed == {"loss": "gspo", "learning_rate": 0.002, "beta": 0.1, "truncated": "keep", "score_noise": None}
    with pytest.raises(UsageError, match="name=value"):
        parse_hyperparameters(None, None, None, ("beta",))


def test_each_request_has_an_id_of_its_own() -> None:
    assert request().request_id != request().request_id


@pytest.mark.parametrize("change", [{"parent": "1.0.1"}, {"agent": "no such/agent"}])
def test_what_can_t_be_is_a_sentence(change: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        request(**change)
