"""What every engine promises, over one tiny model. `vllm-recorded` replays a real server; `make vllm-test` asks one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ratchet.models.loading import load_language_model
from ratchet.models.tokenization import completion_text, load_tokenizer, prompt_ids
from ratchet.service.errors import AdapterError, EngineError, PromptTooLong
from schemas.messages.response import Sample
from schemas.messages.task import ChatMessage
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from tests.ratchet.models.tiny_model import save_adapter
from tests.services.agent.engines.conftest import BLUE, RED, Bench

GREEDY = Sampling(n=1, temperature=0.0, max_tokens=8)


async def answers(bench: Bench, *requests: GenerationRequest) -> list[Generation]:
    results = await bench.engine.generate(requests)
    return [result for result in results if isinstance(result, Generation)]


async def load_both(bench: Bench) -> None:
    for name, path in bench.adapters.items():
        await bench.engine.load_adapter(name, path)


def texts(generation: Generation | EngineError) -> list[str]:
    assert isinstance(generation, Generation), generation
    return [sample.text for sample in generation.samples]


async def test_a_started_engine_says_who_it_is_and_is_ready(bench: Bench) -> None:
    assert bench.engine.trouble() is None
    assert bench.engine.identity
    assert bench.engine.adapters() == frozenset()


async def test_each_request_gets_its_own_number_of_samples_in_order(bench: Bench) -> None:
    requests = [GenerationRequest(f"prompt {n}", Sampling(n=n, max_tokens=4)) for n in (3, 1, 2)]
    generations = await answers(bench, *requests)
    assert [len(generation.samples) for generation in generations] == [3, 1, 2]


async def test_an_empty_batch_is_answered_with_nothing(bench: Bench) -> None:
    assert list(await bench.engine.generate([])) == []


async def test_chat_messages_are_a_prompt_too(bench: Bench) -> None:
    chat = (ChatMessage(role="system", content="be brief"), ChatMessage(role="user", content="hello"))
    (generation,) = await answers(bench, GenerationRequest(chat, GREEDY))
    assert len(generation.samples) == 1
    if bench.tokens:
        assert generation.prompt_ids == tuple(prompt_ids(load_tokenizer(bench.model), chat))


async def test_the_texts_of_tokens_are_told_where_they_are_asked_for(bench: Bench) -> None:
    sampling = Sampling(n=4, max_tokens=10)
    (told,) = await answers(bench, GenerationRequest("hello", sampling, token_texts=True))
    (silent,) = await answers(bench, GenerationRequest("hello", sampling))
    assert {sample.token_texts for sample in silent.samples} == {None}
    for sample in told.samples:
        assert (sample.token_texts is not None) == bench.tokens
        assert sample.token_texts is None or len(sample.token_texts) == len(sample.completion_ids or ())
    assert not bench.tokens or any("".join(sample.token_texts or ()).startswith(sample.text) for sample in told.samples)


async def test_ids_and_logprobs_are_aligned_and_spell_the_text(bench: Bench) -> None:
    (generation,) = await answers(bench, GenerationRequest("hello", Sampling(n=4, max_tokens=10)))
    tokenizer = load_tokenizer(bench.model)
    if not bench.tokens:
        assert generation.prompt_ids is None
        assert all(sample.completion_ids is None for sample in generation.samples)
        return
    assert generation.prompt_ids == tuple(prompt_ids(tokenizer, "hello"))
    for sample in generation.samples:
        assert sample.completion_ids is not None and sample.logprobs is not None
        assert len(sample.completion_ids) == len(sample.logprobs) > 0
        assert all(value <= 0 for value in sample.logprobs)
        assert sample.text == completion_text(tokenizer, list(sample.completion_ids))


async def test_an_answer_ends_with_its_end_token_or_at_its_limit(bench: Bench) -> None:
    hot = Sampling(n=32, temperature=2.0, max_tokens=40)
    short = Sampling(n=2, temperature=1.0, max_tokens=3)
    many, few = await answers(bench, GenerationRequest("hello", hot), GenerationRequest("hello", short))
    if not bench.tokens:
        assert {sample.finish_reason for sample in (*many.samples, *few.samples)} == {"stop"}
        return
    end = load_tokenizer(bench.model).eos_token_id
    assert {sample.finish_reason for sample in many.samples} == {"stop", "length"}
    for sample, limit in [*((one, 40) for one in many.samples), *((one, 3) for one in few.samples)]:
        ids = sample.completion_ids or ()
        assert end not in ids[:-1]
        assert (ids[-1] == end) if sample.finish_reason == "stop" else (len(ids) == limit)


async def test_an_answer_ends_before_a_stop_string_and_keeps_the_tokens_that_wrote_it(bench: Bench) -> None:
    (whole,) = await answers(bench, GenerationRequest("hello", GREEDY))
    (said,) = whole.samples
    words = [said.text[-2:], said.text[-4:][0]] if bench.tokens else [said.text[-2:]]
    for word in words:
        stopping = GREEDY.model_copy(update={"stop": ("not said", word)})
        (told,) = await answers(bench, GenerationRequest("hello", stopping))
        (sample,) = told.samples
        assert (sample.text, sample.finish_reason) == (said.text.partition(word)[0], "stop")
        assert (sample.stopped_at, said.stopped_at) == (word, None)
        if bench.tokens:
            ids, tokenizer = list(said.completion_ids or ()), load_tokenizer(bench.model)
            kept = next(n for n in range(1, 9) if word in completion_text(tokenizer, ids[:n]))
            assert sample.completion_ids == said.completion_ids[:kept]
            assert sample.logprobs == pytest.approx((said.logprobs or ())[:kept], abs=1e-4)


async def test_adapters_answer_differently_in_one_batch_and_leave_the_base_alone(bench: Bench) -> None:
    before = texts((await bench.engine.generate([GenerationRequest("hello", GREEDY)]))[0])
    await load_both(bench)
    base, red, blue = await bench.engine.generate(
        [GenerationRequest("hello", GREEDY, adapter) for adapter in (None, RED, BLUE)]
    )
    assert texts(base) == before
    assert len({texts(base)[0], texts(red)[0], texts(blue)[0]}) == 3


async def test_greedy_answers_do_not_depend_on_the_company_in_the_batch(bench: Bench) -> None:
    await load_both(bench)
    requests = [
        GenerationRequest(prompt, GREEDY, adapter) for prompt in ("a", "a longer one") for adapter in (None, RED, BLUE)
    ]
    together = [texts(generation) for generation in await bench.engine.generate(requests)]
    alone = [texts((await bench.engine.generate([request]))[0]) for request in requests]
    assert together == alone


async def test_greedy_samples_of_a_group_are_equal(bench: Bench) -> None:
    (generation,) = await answers(bench, GenerationRequest("hello", GREEDY.model_copy(update={"n": 3})))
    assert len(generation.samples) == 3
    assert len(set(generation.samples)) == 1


@pytest.mark.parametrize("adapter", [None, RED])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(n=3, max_tokens=8),
        Sampling(n=2, temperature=0.6, max_tokens=8),
        Sampling(n=2, temperature=1.3, top_k=5, max_tokens=8),
        Sampling(n=2, temperature=0.9, top_p=0.8, max_tokens=8),
        Sampling(n=2, temperature=1.2, top_k=20, top_p=0.9, max_tokens=8),
        Sampling(n=1, temperature=0.0, max_tokens=8),
    ],
    ids=["plain", "cool", "top-k", "top-p", "both", "greedy"],
)
async def test_logprobs_are_those_the_tokens_were_sampled_with(
    bench: Bench, sampling: Sampling, adapter: str | None
) -> None:
    await load_both(bench)
    (generation,) = await answers(bench, GenerationRequest("hello", sampling, adapter))
    if not bench.tokens:
        return
    path = str(bench.adapters[adapter]) if adapter else None
    for sample in generation.samples:
        expected = forced_logprobs(bench, generation.prompt_ids or (), sample, sampling, path)
        assert sample.logprobs == pytest.approx(expected, abs=1e-4)


def forced_logprobs(
    bench: Bench, prompt: Sequence[int], sample: Sample, sampling: Sampling, adapter: str | None
) -> list[float]:
    """By one forward pass over prompt and completion, and the filters of transformers."""
    from peft import PeftModel
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    model: Any = load_language_model(str(bench.model)).model
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    completion = torch.tensor(sample.completion_ids)
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *completion.tolist()]])).logits[0, len(prompt) - 1 : -1]
    filters = LogitsProcessorList()
    if sampling.temperature not in (0.0, 1.0):
        filters.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        filters.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        filters.append(TopPLogitsWarper(sampling.top_p))
    values: list[float] = (
        filters(completion[:, None], logits).log_softmax(-1).gather(-1, completion[:, None])[:, 0].tolist()
    )
    return values


async def test_a_prompt_that_leaves_no_room_is_refused_and_harms_no_other(bench: Bench) -> None:
    long = GenerationRequest("x" * bench.max_positions, GREEDY)
    refused, answered = await bench.engine.generate([long, GenerationRequest("hello", GREEDY)])
    assert isinstance(answered, Generation)
    if bench.tokens:
        assert isinstance(refused, PromptTooLong)
        assert str(bench.max_positions) in str(refused)


async def test_a_prompt_that_leaves_little_room_gets_as_much_answer_as_fits(bench: Bench) -> None:
    prompt = "x" * (bench.max_positions - 8)
    sampling = Sampling(n=1, temperature=0.0, max_tokens=50)
    (generation,) = await answers(bench, GenerationRequest(prompt, sampling))
    if bench.tokens:
        room = bench.max_positions - len(generation.prompt_ids or ())
        assert len(generation.samples[0].completion_ids or ()) == room
        assert generation.samples[0].finish_reason == "length"


async def test_an_unknown_adapter_is_refused_and_harms_no_other(bench: Bench) -> None:
    refused, answered = await bench.engine.generate(
        [GenerationRequest("hello", GREEDY, "../no/such"), GenerationRequest("hello", GREEDY)]
    )
    assert isinstance(refused, AdapterError)
    assert "no/such" in str(refused)
    assert isinstance(answered, Generation)


async def test_an_adapter_is_loaded_once_and_unloaded_for_good(bench: Bench) -> None:
    await load_both(bench)
    await bench.engine.load_adapter(RED, bench.adapters[RED])
    assert bench.engine.adapters() == {RED, BLUE}

    await bench.engine.unload_adapter(RED)
    await bench.engine.unload_adapter(RED)

    assert bench.engine.adapters() == {BLUE}
    gone, there = await bench.engine.generate([GenerationRequest("hello", GREEDY, name) for name in (RED, BLUE)])
    assert isinstance(gone, AdapterError)
    assert isinstance(there, Generation)


async def test_adapters_come_and_go_under_traffic(bench: Bench) -> None:
    base = GenerationRequest("hello", GREEDY)
    expected = texts((await bench.engine.generate([base]))[0])

    async def traffic() -> list[list[str]]:
        return [texts((await bench.engine.generate([base]))[0]) for _ in range(10)]

    async def changes() -> None:
        for _ in range(3):
            await load_both(bench)
            (answer,) = await bench.engine.generate([GenerationRequest("hello", GREEDY, RED)])
            assert texts(answer) != expected
            await bench.engine.unload_adapter(RED)
            await bench.engine.unload_adapter(BLUE)

    seen, _ = await asyncio.gather(traffic(), changes())
    assert seen == [expected] * 10
    assert bench.engine.adapters() == frozenset()


async def test_a_missing_adapter_can_not_be_loaded(bench: Bench) -> None:
    with pytest.raises(AdapterError, match="restore it, or roll"):
        await bench.engine.load_adapter(RED, bench.model.parent / "nowhere")
    assert bench.engine.adapters() == frozenset()


@pytest.mark.parametrize("change", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"r": 64}], ids=str)
async def test_an_adapter_that_can_not_be_served_is_refused_and_the_engine_goes_on(
    bench: Bench, change: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not bench.tokens or (change == {"r": 64} and not bench.engine.identity.startswith("vllm")):
        return
    folder = save_adapter(bench.model, tmp_path_factory.mktemp("odd") / "odd", seed=4, **change)
    with pytest.raises(AdapterError):
        await bench.engine.load_adapter("small-v1.0.3-0000cccc", folder)
    assert len(await answers(bench, GenerationRequest("hello", GREEDY))) == 1
    assert bench.engine.trouble() is None
