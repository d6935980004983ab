"""The loop over rows that come and go, held against transformers' own `generate` and a whole forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.service.errors import EngineError
from schemas.messages.work import Sampling
from services.agent.engines.cached_forward import cache_shape, misfit
from services.agent.engines.decode_loop import DecodeLoop
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.row_cache import BLOCK, CacheShape, Prefixes
from services.agent.engines.tokens import Answer, Completion, TokenRequest
from services.agent.engines.whole_batches import WholeBatches
from tests.services.agent.engines.conftest import BLUE, RED

LONG = [3 + number % 200 for number in range(40)]
MIB = 1024**2


@pytest.fixture(scope="module")
def lm(tiny_model: Path) -> LanguageModel:
    return load_language_model(str(tiny_model), device="cpu")


class Counted:
    """How many tokens each pass through the model computed, padding included; `fails` at batches of that many rows."""

    def __init__(self, model: Any) -> None:
        self.passes: list[tuple[int, int]] = []
        self.fails = 0
        self._hook = model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _: Any, __: Any, given: dict[str, Any]) -> None:
        rows, tokens = given["input_ids"].shape
        self.passes.append((rows, tokens))
        if self.fails and rows >= self.fails:
            raise RuntimeError("no room for so many")

    def end(self) -> None:
        self._hook.remove()


@pytest.fixture
def counted(lm: LanguageModel) -> Any:
    counted = Counted(lm.model)
    yield counted
    counted.end()


def loop_of(lm: LanguageModel, adapters: RowAdapters | None = None, **changed: Any) -> DecodeLoop:
    shape = cache_shape(lm.model)
    assert isinstance(shape, CacheShape)
    settings = {"end_ids": lm.end_ids, "max_rows": 8, "cache_bytes": 64 * MIB} | changed
    return DecodeLoop(lm.model, shape, adapters or RowAdapters(lm.model), **settings)


def greedy(tokens: int, n: int = 1) -> Sampling:
    return Sampling(n=n, temperature=0.0, max_tokens=tokens)


def until_idle(loop: DecodeLoop, answers: dict[int, Answer] | None = None) -> dict[int, Answer]:
    found = answers if answers is not None else {}
    while loop.busy:
        found.update(loop.step())
    return found


def samples(answer: Answer) -> Sequence[Completion]:
    assert not isinstance(answer, EngineError), answer
    return answer


def by_generate(lm: LanguageModel, ids: Sequence[int], tokens: int) -> tuple[int, ...]:
    made = lm.model.generate(
        torch.tensor([list(ids)]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=sorted(lm.end_ids),
        pad_token_id=lm.tokenizer.pad_token_id,
    )
    return tuple(made[0, len(ids) :].tolist())


@torch.inference_mode()
def whole_logprobs(model: Any, prompt: Sequence[int], ids: Sequence[int]) -> list[float]:
    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float()
    values: list[float] = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0].tolist()
    return values


def text_of(ids: Sequence[int]) -> str:
    return "".join(f"<{token}>" for token in ids)


def in_two_tokens(whole: Sequence[int]) -> tuple[str, int]:
    """A stop string that the fifth and sixth of them hold together, and how many are sampled until it is whole."""
    stop = f"{str(whole[4])[-1]}><{str(whole[5])[0]}"
    return stop, next(n for n in range(1, 20) if stop in text_of(whole[:n]))


@pytest.mark.parametrize("every", [1, 4])
def test_a_row_ends_with_the_token_that_completes_a_stop_string_whenever_it_is_looked_at(
    lm: LanguageModel, every: int
) -> None:
    # given tokens that are a word each, a stop string in the middle of two of them, and a neighbour without one
    whole = by_generate(lm, LONG, 20)
    told: list[int] = []

    def listen(sample: int, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        told.extend(ids)

    stop, kept = in_two_tokens(whole)
    loop = loop_of(lm, check_every=every)
    sampling = greedy(20).model_copy(update={"stop": (stop,)})
    loop.submit(0, TokenRequest(LONG, sampling, text_of=text_of, on_tokens=listen))
    loop.submit(1, TokenRequest(LONG, greedy(20)))
    found: dict[int, Answer] = {}
    while 0 not in found:
        found.update(loop.step())

    assert loop.busy, "its neighbour goes on"
    ((stopped,), (other,)) = (samples(answer) for answer in until_idle(loop, found).values())
    assert (stopped.ids, stopped.finish_reason, len(stopped.logprobs)) == (whole[:kept], "stop", kept)
    assert tuple(told) == stopped.ids
    assert stopped.logprobs == pytest.approx(other.logprobs[:kept], abs=1e-5)
    assert other.ids == whole


def test_in_a_whole_batch_a_row_ends_at_its_stop_string_and_the_batch_with_its_last(
    lm: LanguageModel, counted: Counted
) -> None:
    whole, other = by_generate(lm, LONG, 20), by_generate(lm, LONG[:5], 3)
    stop, kept = in_two_tokens(whole)
    loop = WholeBatches(lm.model, lm.tokenizer, RowAdapters(lm.model), end_ids=lm.end_ids, max_rows=4)
    counted.passes.clear()
    loop.submit(0, TokenRequest(LONG, greedy(20).model_copy(update={"stop": (stop,)}), text_of=text_of))
    loop.submit(1, TokenRequest(LONG[:5], greedy(3)))

    ((stopped,), (neighbour,)) = (samples(answer) for _, answer in loop.step())

    assert (stopped.ids, stopped.finish_reason, len(stopped.logprobs)) == (whole[:kept], "stop", kept)
    assert neighbour.ids == other
    assert len(counted.passes) == max(kept, 3)


def test_rows_that_come_and_go_say_what_generate_says(lm: LanguageModel) -> None:
    # given prompts of many lengths, some with a beginning in common, that come while others are generated
    prompts = [LONG[:5], LONG, [*LONG[:33], 9, 8], [7] * 21, LONG[:17], [*LONG, 5, 5]]
    limits = [12, 3, 9, 20, 1, 6]
    loop = loop_of(lm, max_rows=4)
    answers: dict[int, Answer] = {}
    for number, (ids, limit) in enumerate(zip(prompts, limits, strict=True)):
        loop.submit(number, TokenRequest(ids, greedy(limit, n=1 + number % 2)))
        answers.update(loop.step())
    until_idle(loop, answers)

    for number, (ids, limit) in enumerate(zip(prompts, limits, strict=True)):
        expected = by_generate(lm, ids, limit)
        for sample in samples(answers[number]):
            assert sample.ids == expected
            assert sample.logprobs == pytest.approx(whole_logprobs(lm.model, ids, expected), abs=1e-4)


def test_a_mixed_batch_of_adapters_is_what_each_says_alone(
    lm: LanguageModel, tiny_model: Path, tiny_adapters: dict[str, Path]
) -> None:
    model = load_language_model(str(tiny_model), device="cpu")
    adapters = RowAdapters(model.model)
    for name, path in tiny_adapters.items():
        adapters.load(name, path)
    loop = loop_of(model, adapters)
    names = [None, RED, BLUE]
    for number, name in enumerate(names):
        loop.submit(number, TokenRequest(LONG, Sampling(n=2, max_tokens=4 + 3 * number), name))
        loop.step()
    answers = until_idle(loop)

    for number, name in enumerate(names):
        plain = load_language_model(str(tiny_model), device="cpu").model
        alone = plain if name is None else PeftModel.from_pretrained(plain, str(tiny_adapters[name]))
        for sample in samples(answers[number]):
            assert sample.logprobs == pytest.approx(whole_logprobs(alone, LONG, sample.ids), abs=1e-4)


def test_a_prompt_is_computed_once_for_its_group_and_its_beginning_until_two_prompts_had_it(
    lm: LanguageModel, counted: Counted
) -> None:
    loop = loop_of(lm)
    counted.passes.clear()
    loop.submit(0, TokenRequest(LONG, greedy(3, n=4)))
    until_idle(loop)
    assert counted.passes == [(1, 40), (4, 1), (4, 1)]

    counted.passes.clear()
    for number in (1, 2):
        loop.submit(number, TokenRequest([*LONG[:35], 9, number], greedy(1)))
        until_idle(loop)
    assert counted.passes == [(1, 37), (1, 37 - 2 * BLOCK)]


def test_prompts_that_come_together_wait_for_the_one_that_computes_their_beginning(
    lm: LanguageModel, counted: Counted
) -> None:
    loop = loop_of(lm)
    counted.passes.clear()
    for number in range(4):
        loop.submit(number, TokenRequest([*LONG, number, number + 1], greedy(1)))
    until_idle(loop)
    assert counted.passes == [(1, 42), (3, 42 - 2 * BLOCK)]


def test_an_adapter_s_prefixes_are_its_own(lm: LanguageModel) -> None:
    shape = cache_shape(lm.model)
    assert isinstance(shape, CacheShape)
    prefixes = Prefixes(10 * BLOCK * shape.token_bytes)
    kept = torch.zeros(shape.layers, 2, shape.heads, 64, shape.width)
    prefixes.add(RED, LONG, kept)
    assert [prefixes.length(name, LONG) for name in (None, RED, BLUE)] == [0, 32, 0]
    assert prefixes.length(RED, LONG[:32]) == 16
    prefixes.forget(RED)
    assert prefixes.length(RED, LONG) == prefixes.bytes == 0


def test_prefixes_keep_their_bound_and_the_one_used_last() -> None:
    kept = torch.zeros(1, 2, 1, 64, 1)
    block = 2 * BLOCK * 4
    prefixes = Prefixes(3 * block)
    first, second, third = ([number] * 33 for number in (1, 2, 3))
    prefixes.add(None, first, kept)
    prefixes.add(None, second, kept)
    assert prefixes.bytes == 3 * block
    assert [prefixes.length(None, ids) for ids in (first, second)] == [16, 32]
    prefixes.add(None, first, kept)
    prefixes.add(None, third, kept)
    assert prefixes.bytes == 3 * block
    assert [prefixes.length(None, ids) for ids in (first, second, third)] == [16, 0, 32]


def test_a_row_that_ends_makes_room_at_once_and_the_higher_priority_enters(lm: LanguageModel, counted: Counted) -> None:
    loop = loop_of(lm, max_rows=2)
    counted.passes.clear()
    order: list[int] = []
    for number, (limit, priority) in enumerate([(9, 5), (2, 0), (2, 0), (2, 9)]):
        loop.submit(number, TokenRequest([20 + number] * 5, greedy(limit), priority=priority))
    while loop.busy:
        order += [number for number, _ in loop.step()]
    assert order == [3, 1, 2, 0]
    assert max(rows for rows, _ in counted.passes) == 2


def test_one_that_is_given_up_leaves_the_others_as_they_were(lm: LanguageModel) -> None:
    loop = loop_of(lm, max_rows=4)
    for number in range(3):
        loop.submit(number, TokenRequest(LONG[number:], greedy(8, n=2 if number == 0 else 1)))
    loop.step()
    loop.cancel(0)
    loop.submit(3, TokenRequest([5] * 7, greedy(8)))
    loop.submit(4, TokenRequest([6] * 7, greedy(8)))
    loop.cancel(4)
    loop.cancel(77)
    answers = until_idle(loop)

    assert sorted(answers) == [1, 2, 3]
    for number, ids in ((1, LONG[1:]), (2, LONG[2:]), (3, [5] * 7)):
        assert samples(answers[number])[0].ids == by_generate(lm, ids, 8)
    assert loop.rows == 0


def test_what_has_no_memory_waits_and_a_larger_one_goes_alone(lm: LanguageModel) -> None:
    shape = cache_shape(lm.model)
    assert isinstance(shape, CacheShape)
    loop = loop_of(lm, cache_bytes=shape.token_bytes * 30 * 8 // 7 + 8)
    for number, (length, n) in enumerate([(5, 1), (5, 1), (40, 2), (5, 1)]):
        loop.submit(number, TokenRequest(LONG[:length], greedy(5, n=n)))
    most: list[int] = []
    while loop.busy:
        loop.step()
        most.append(loop.rows)
    assert max(most) == 2


def test_where_a_pass_fails_each_is_tried_alone(lm: LanguageModel, counted: Counted) -> None:
    loop = loop_of(lm)
    counted.fails = 3
    for number, n in enumerate((2, 4, 1)):
        loop.submit(number, TokenRequest(LONG[:8], greedy(4, n=n)))
    answers = until_idle(loop)
    fault = answers[1]
    assert isinstance(fault, EngineError) and "4 samples failed: no room" in str(fault)
    for number in (0, 2):
        assert samples(answers[number])[0].ids == by_generate(lm, LONG[:8], 4)


def test_tokens_are_told_as_they_come_and_a_conversation_goes_on_where_it_was(
    lm: LanguageModel, counted: Counted
) -> None:
    told: list[tuple[int, tuple[int, ...], tuple[float, ...]]] = []
    loop = loop_of(lm)
    listen = lambda sample, ids, logprobs: told.append((sample, tuple(ids), tuple(logprobs)))  # noqa: E731
    loop.submit(0, TokenRequest(LONG, greedy(12), on_tokens=listen, keep=True))
    (answer,) = samples(until_idle(loop)[0])
    assert [len(ids) for _, ids, _ in told] == [1] * len(answer.ids)
    assert tuple(token for _, ids, _ in told for token in ids) == answer.ids
    assert tuple(value for _, _, values in told for value in values) == answer.logprobs

    counted.passes.clear()
    turn = [*LONG, *answer.ids, 7, 7]
    loop.submit(1, TokenRequest(turn, greedy(3)))
    assert samples(until_idle(loop)[1])[0].ids == by_generate(lm, turn, 3)
    assert counted.passes[0] == (1, len(turn) - (len(turn) - 3) // BLOCK * BLOCK)


def small(kind: Any, config: Any, **changed: Any) -> Any:
    torch.manual_seed(1)
    return kind(config(vocab_size=50, bos_token_id=0, eos_token_id=0, **changed)).eval()


def test_models_are_tried_before_their_rows_are_mixed() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    gpt2 = small(GPT2LMHeadModel, GPT2Config, n_embd=32, n_layer=2, n_head=2)
    whole = small(MistralForCausalLM, MistralConfig, **sizes, sliding_window=None)
    window = small(MistralForCausalLM, MistralConfig, **sizes, sliding_window=4)
    rounded = small(MistralForCausalLM, MistralConfig, **sizes, sliding_window=None).to(torch.bfloat16)
    for model in (gpt2, whole, rounded):
        shape = cache_shape(model)
        assert isinstance(shape, CacheShape)
        assert misfit(model, shape) is None
    assert "not all of its layers" in str(cache_shape(window))

    # this one takes positions from how the mask is filled, not from the positions it is given
    bloom = small(BloomForCausalLM, BloomConfig, hidden_size=32, n_layer=2, n_head=4)
    shape = cache_shape(bloom)
    assert isinstance(shape, str) or misfit(bloom, shape) is not None
