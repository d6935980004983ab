"""The knobs: whose word counts, and what is refused."""

from __future__ import annotations

import pytest

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, default_learning_rate
from services.trainer.algorithms.supervised import SftHyperparameters


def test_a_request_goes_before_the_services_defaults_and_those_before_ours() -> None:
    knobs = GrpoHyperparameters.read({"epochs": 5, "beta": 0.1}, {"epochs": 7})

    assert (knobs.epochs, knobs.beta, knobs.clip_low) == (7, 0.1, 0.2)


def test_a_default_that_an_algorithm_does_not_know_is_another_algorithms() -> None:
    assert SftHyperparameters.read({"loss": "gspo", "epochs": 3}, {}).epochs == 3


@pytest.mark.parametrize(
    ("given", "complaint"),
    [({"epoch": 3}, "epoch: Extra inputs"), ({"epochs": 0}, "epochs: Input should"), ({"loss": "ppo"}, "loss: Input")],
)
def test_what_a_request_gives_must_be_known_and_in_range(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(TrainingRefused, match=complaint):
        GrpoHyperparameters.read({}, given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("knobs", "samples", "passes"),
    [
        ({"batch": 64}, 2048, 4),  # 32 steps a pass
        ({"batch": 64}, 60, 8),  # 1 step a pass, and no more than 8 passes
        ({"batch": 64}, 32_768, 2),  # 512 steps a pass
        ({"batch": 64, "steps": 32}, 512, 4),
        ({"batch": 64, "epochs": 3}, 512, 3),
    ],
)
def test_a_small_window_is_passed_over_more_often(knobs: dict[str, int], samples: int, passes: int) -> None:
    assert GrpoHyperparameters.read({}, dict(knobs)).passes(samples) == passes


@pytest.mark.parametrize("name", ["dora", "lora_dora", "use_dora"])
def test_dora_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(TrainingRefused, match="DoRA is not offered: vLLM refuses"):
        GrpoHyperparameters.read({}, {name: True})


def test_a_cpu_takes_fewer_tokens_at_once_unless_told() -> None:
    assert [GrpoHyperparameters().tokens_at_once(on_gpu=on_gpu) for on_gpu in (True, False)] == [16_384, 2_048]
    assert GrpoHyperparameters(micro_batch_tokens=500).tokens_at_once(on_gpu=True) == 500


@pytest.mark.parametrize(
    ("parameters", "rate"),
    [(100_000, 1e-3), (200_000, 1e-3), (2_000_000, 3.16e-4), (494_032_768, 1e-4), (8e9, 1e-4), (70e9, 5e-5)],
)
def test_the_learning_rate_falls_with_the_size_of_the_model(parameters: float, rate: float) -> None:
    assert default_learning_rate(int(parameters)) == pytest.approx(rate, rel=0.01)
