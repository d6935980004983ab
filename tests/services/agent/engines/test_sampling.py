"""The filters are compared with those of transformers, one row at a time; the draw itself is transformers' own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from schemas.messages.work import Sampling
from services.agent.engines.sampling import RowLimits, SamplingOfGenerate

CPU = torch.device("cpu")
VOCABULARY = 50

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 3, 20, 100]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]),
)


def reference(sampling: Sampling, logits: torch.Tensor) -> torch.Tensor:
    filters = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        filters.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        filters.append(TopPLogitsWarper(sampling.top_p))
    filtered: torch.Tensor = filters(torch.zeros(1, 1, dtype=torch.long), logits[None])
    return filtered.log_softmax(-1)[0]


@settings(max_examples=60)
@given(rows=st.lists(samplings, min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_each_row_is_filtered_by_its_own_parameters(rows: list[Sampling], seed: int) -> None:
    logits = torch.randn(len(rows), VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3
    sampled_from = SamplingOfGenerate(rows, CPU, end_id=0)(torch.zeros(len(rows), 1, dtype=torch.long), logits)
    for row, sampling in enumerate(rows):
        torch.testing.assert_close(sampled_from[row], reference(sampling, logits[row]), atol=1e-5, rtol=0)


def test_greedy_rows_give_one_token_and_log_the_model_s_own_probability() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    sampler = SamplingOfGenerate([Sampling(temperature=0.0, top_p=0.5), Sampling(temperature=1.0)], CPU, end_id=0)
    sampled_from = sampler(torch.zeros(2, 1, dtype=torch.long), logits)
    assert sampled_from[0].exp().tolist() == [0.0, pytest.approx(0.6652, abs=1e-4), 0.0]
    assert sampler.logprobs(torch.tensor([[1], [2]]))[0, 0] == pytest.approx(-0.4076, abs=1e-4)


def test_the_recorded_value_is_that_of_the_token_drawn_at_each_step() -> None:
    sampler = SamplingOfGenerate([Sampling()], CPU, end_id=0)
    ids = torch.zeros(1, 1, dtype=torch.long)
    drawn, expected = [], []
    for step in range(3):
        logprobs = sampler(ids, torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(step)))
        token = 7 * step
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
        drawn.append(token)
        expected.append(logprobs[0, token].item())
    assert sampler.logprobs(torch.tensor([drawn]))[0].tolist() == pytest.approx(expected)


def test_rows_end_at_their_own_limit() -> None:
    steps: list[int] = []
    limits = RowLimits(5, [1, 3], CPU, lambda: steps.append(len(steps)))
    assert limits(torch.zeros(2, 6, dtype=torch.long), None).tolist() == [True, False]
    assert limits(torch.zeros(2, 8, dtype=torch.long), None).tolist() == [True, True]
    assert len(steps) == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_ended_and_marked_and_the_others_are_as_before(number: float) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, number], [float("-inf")] * 3, [float("-inf"), 0.0, 0.0]])
    sampler = SamplingOfGenerate([Sampling()] * 4, CPU, end_id=1)

    sampled_from = sampler(torch.zeros(4, 1, dtype=torch.long), logits).exp()

    assert sampler.broken == [False, True, True, False]
    assert torch.allclose(sampled_from[[0, 3]], logits[[0, 3]].softmax(-1))
    assert sampled_from[[1, 2]].tolist() == [[0.0, 1.0, 0.0]] * 2
