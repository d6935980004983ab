from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from demos.toy.byte_tokenizer import END, PAD, VOCABULARY, byte_tokenizer
from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.tokenization import prompt_ids
from ratchet.service.errors import EngineError, ScorerError
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.likelihood import FLOOR, Likelihood, TokenRow, buckets, rows_of
from services.scorer.strategies.strategy import Answer, ScoringRequest

POSITIONS = 64


def save_tiny_model(folder: Path, *, sharpness: float = 1.0, ends: tuple[str, ...] = (END,)) -> Path:
    """Random weights; `sharpness` scales the logits, so that some tokens become absurd."""
    torch.manual_seed(5)
    tokenizer = byte_tokenizer(POSITIONS)
    end_ids = [tokenizer.convert_tokens_to_ids(token) for token in ends]
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        eos_token_id=end_ids if len(end_ids) > 1 else end_ids[0],
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", sharpness=60.0)


@pytest.fixture
async def likelihood(folder: Path) -> AsyncIterator[Likelihood]:
    strategy = Likelihood.build("", settings(folder))
    await strategy.start()
    yield strategy
    await strategy.stop()


def settings(folder: Path, **given: Any) -> ScorerSettings:
    return ScorerSettings(scorer_likelihood_model=str(folder), scorer_likelihood_device="cpu", **given)


def request(prompt: str, *answers: Answer) -> ScoringRequest:
    return ScoringRequest("t-1", prompt, answers)


def by_hand(model: LanguageModel, prompt: str, answer: Answer) -> float:
    """The definition, token by token, one sequence at a time."""
    ids = prompt_ids(model.tokenizer, prompt)
    tokens = list(model.tokenizer.encode(answer.text, add_special_tokens=False, split_special_tokens=True))
    logprobs = []
    for token in tokens:
        logprobs.append(next_logprobs(model, ids)[token].item())
        ids = [*ids, token]
    if answer.finish_reason != "length":
        ends = next_logprobs(model, ids)[sorted(model.end_ids)]
        logprobs.append(ends.exp().sum().log().item())
    return math.exp(sum(max(value, FLOOR) for value in logprobs) / len(logprobs))


@torch.inference_mode()
def next_logprobs(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model.model(torch.tensor([ids])).logits[0, -1]
    return logits.log_softmax(-1)


REQUESTS = [
    request("sort: ba", Answer("ab", "stop"), Answer("ba", "stop"), Answer("ab", "length"), Answer("", "stop")),
    request("a much longer prompt than that", Answer("é", "stop"), Answer("x" * 20)),
    request("", Answer("a")),
]


async def test_batched_and_padded_it_equals_the_definition(folder: Path, likelihood: Likelihood) -> None:
    model = load_language_model(str(folder), device="cpu")

    scored = await asyncio.gather(*(likelihood.score(each) for each in REQUESTS))

    for each, scores in zip(REQUESTS, scored, strict=True):
        wanted = [by_hand(model, str(each.prompt), answer) for answer in each.answers]
        assert [score.score for score in scores] == pytest.approx(wanted, rel=1e-4)
    everything = [score.score or 0.0 for scores in scored for score in scores]
    assert min(everything) < 0.05
    assert all(math.exp(FLOOR) * 0.999 <= score <= 1.0 for score in everything)


async def test_small_buckets_give_the_same_scores(folder: Path, likelihood: Likelihood) -> None:
    narrow = Likelihood.build("", settings(folder, scorer_likelihood_batch_tokens=64))
    await narrow.start()
    for each in REQUESTS:
        one, other = await narrow.score(each), await likelihood.score(each)
        assert [score.score for score in one] == pytest.approx([score.score for score in other], rel=1e-4)
    await narrow.stop()


async def test_any_of_several_end_tokens_ends_an_answer(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "two-ends", ends=(END, PAD))
    strategy = Likelihood.build("", settings(folder))
    await strategy.start()
    (score,) = await strategy.score(request("p", Answer("")))
    await strategy.stop()
    assert score.score == pytest.approx(by_hand(load_language_model(str(folder), device="cpu"), "p", Answer("")))


def test_control_tokens_in_an_answer_are_text(folder: Path) -> None:
    (row,) = rows_of(request("p", Answer(END)), load_language_model(str(folder), device="cpu"))
    assert isinstance(row, TokenRow)
    assert len(row.ids) - row.start == len(END)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Answer("x" * 100), "the model reads 64"), (Answer("", "length"), "no token to score")],
)
async def test_what_the_model_can_not_read_is_unscorable_and_its_neighbours_are_scored(
    likelihood: Likelihood, answer: Answer, reason: str
) -> None:
    bad, good = await likelihood.score(request("p", answer, Answer("ok")))
    assert (bad.score, bad.status) == (None, "unscorable")
    assert reason in (bad.reason or "")
    assert good.status == "ok"


async def test_the_identity_is_that_of_the_weights(likelihood: Likelihood, tmp_path: Path) -> None:
    other = Likelihood.build("", settings(save_tiny_model(tmp_path / "tiny", sharpness=2.0)))
    await other.start()
    assert likelihood.identity.revision.startswith("tiny@")
    assert other.identity != likelihood.identity
    await other.stop()


async def test_a_model_that_is_not_there_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    strategy = Likelihood.build("", settings(tmp_path / "empty"))
    assert strategy.trouble() == "the likelihood model is not loaded yet"
    with pytest.raises(EngineError, match=r"config\.json"):
        await strategy.start()
    await strategy.stop()


def test_an_argument_is_refused() -> None:
    with pytest.raises(ScorerError, match="RATCHET_SCORER_LIKELIHOOD_MODEL"):
        Likelihood.build("qwen", ScorerSettings())


@given(lengths=st.lists(st.integers(1, 50), max_size=30), limit=st.integers(1, 200))
def test_buckets_hold_every_row_once_within_the_limit(lengths: list[int], limit: int) -> None:
    rows = [TokenRow([0] * length, 1, True) for length in lengths]
    made = list(buckets(rows, limit))
    assert sorted(id(row) for bucket in made for row in bucket) == sorted(map(id, rows))
    for bucket in made:
        assert len(bucket) == 1 or len(bucket) * max(len(row.ids) for row in bucket) <= limit
