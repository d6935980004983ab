"""What is particular to the engine in this process."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MistralConfig, MistralForCausalLM

from ratchet.models.loading import load_language_model
from ratchet.service.errors import AdapterError, EngineError, PromptTooLong
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.engines.own_process.engine_process import EngineProcess
from services.agent.engines.transformers_engine import TransformersEngine
from tests.ratchet.models.tiny_model import save_adapter
from tests.services.agent.engines.child_here import begin_here
from tests.services.agent.engines.conftest import RED

HUGE = "small-v1.0.9-0000ffff"
FLOAT32 = 2e-5
"""In nats: rows computed in other company round otherwise, on one processor more than on another."""
GREEDY = Sampling(n=1, temperature=0.0, max_tokens=8)


@pytest.fixture
def engine(tiny_model: Path) -> TransformersEngine:
    engine = TransformersEngine(partial(load_language_model, str(tiny_model)), seed=3)
    engine.start()
    return engine


def text(engine: TransformersEngine, adapter: str | None = None) -> str:
    (generation,) = engine.generate([GenerationRequest("hello", GREEDY, adapter)])
    assert isinstance(generation, Generation)
    return generation.samples[0].text


def test_requests_sampled_in_different_ways_share_one_batch(engine: TransformersEngine) -> None:
    samplings = [GREEDY, Sampling(n=2, temperature=0.5, max_tokens=3), Sampling(n=1, top_k=1, max_tokens=8)]
    results = engine.generate([GenerationRequest("hello", sampling) for sampling in samplings])
    greedy, warm, top_one = (result for result in results if isinstance(result, Generation))
    assert top_one.samples[0].text == greedy.samples[0].text
    assert {len(sample.completion_ids or ()) for sample in warm.samples} == {3}


def test_one_seed_gives_the_same_samples_again(tiny_model: Path) -> None:
    def sampled(seed: int) -> list[str]:
        engine = TransformersEngine(partial(load_language_model, str(tiny_model)), seed=seed)
        engine.start()
        (generation,) = engine.generate([GenerationRequest("hello", Sampling(n=4, max_tokens=8))])
        assert isinstance(generation, Generation)
        return [sample.text for sample in generation.samples]

    assert sampled(1) == sampled(1) != sampled(2)


def test_an_adapter_without_all_its_weights_is_refused_not_filled_up(
    engine: TransformersEngine, tiny_model: Path, tmp_path: Path
) -> None:
    folder = save_adapter(tiny_model, tmp_path / "torn", seed=9)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file(dict(list(weights.items())[:-2]), folder / "adapter_model.safetensors")
    before = text(engine)
    with pytest.raises(AdapterError, match="disagree"):
        engine.load_adapter(RED, folder)
    assert isinstance(engine.generate([GenerationRequest("hello", GREEDY, RED)])[0], AdapterError)
    assert text(engine) == before


def test_an_adapter_of_another_model_is_refused(engine: TransformersEngine, tiny_model: Path, tmp_path: Path) -> None:
    folder = save_adapter(tiny_model, tmp_path / "wide", seed=9)
    narrow = load_file(folder / "adapter_model.safetensors").items()
    wide = {name: weight.repeat((1, 2) if "lora_A" in name else (2, 1)) for name, weight in narrow}
    save_file(wide, folder / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="does not fit the model"):
        engine.load_adapter(RED, folder)
    assert len(text(engine)) > 0


def test_rows_whose_numbers_overflow_fail_alone_and_name_their_adapter(
    engine: TransformersEngine, tiny_model: Path, tmp_path: Path
) -> None:
    # given an adapter of finite, allowed weights whose products overflow, beside a good one and the base model
    mlp = ["gate_proj", "up_proj", "down_proj"]
    folder = save_adapter(tiny_model, tmp_path / "huge", seed=9, lora_alpha=16_000, target_modules=mlp)
    weights = {name: weight.sign() * 1.3e5 for name, weight in load_file(folder / "adapter_model.safetensors").items()}
    save_file(weights, folder / "adapter_model.safetensors")
    engine.load_adapter(HUGE, folder)
    engine.load_adapter(RED, save_adapter(tiny_model, tmp_path / "red", seed=2))
    alone = [text(engine), text(engine, RED)]

    # when they share a batch
    together = engine.generate([GenerationRequest("hello", GREEDY, adapter) for adapter in (None, HUGE, RED)])

    # then only its own request fails, for good, and with advice that helps
    base, huge, red = together
    assert isinstance(base, Generation) and isinstance(red, Generation)
    assert [base.samples[0].text, red.samples[0].text] == alone
    assert isinstance(huge, AdapterError)
    assert "not finite" in str(huge) and HUGE in str(huge) and "MAX_BATCH" not in str(huge)


def test_weights_that_are_no_safetensors_are_refused(
    engine: TransformersEngine, tiny_model: Path, tmp_path: Path
) -> None:
    folder = save_adapter(tiny_model, tmp_path / "junk", seed=9)
    (folder / "adapter_model.safetensors").write_bytes(b"not weights")
    with pytest.raises(AdapterError):
        engine.load_adapter(RED, folder)
    assert len(text(engine)) > 0


def test_a_model_whose_rows_can_not_come_and_go_is_generated_with_in_whole_batches(
    tiny_model: Path, tmp_path: Path
) -> None:
    # given a model that forgets what is more than four tokens away
    lm = load_language_model(str(tiny_model), device="cpu")
    config = MistralConfig(
        **{name: getattr(lm.model.config, name) for name in ("vocab_size", "hidden_size", "intermediate_size")},
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=4,
        eos_token_id=lm.tokenizer.eos_token_id,
        pad_token_id=lm.tokenizer.pad_token_id,
    )
    MistralForCausalLM(config).save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    engine = TransformersEngine(partial(load_language_model, str(tmp_path)), seed=3, max_batch=2)
    engine.start()

    # when more is asked than fits in a batch
    prompts = ("hello", "a longer one", "x")
    answers = engine.generate([GenerationRequest(prompt, GREEDY) for prompt in prompts])

    # then it says so, and each answer is the model's own
    assert "generated with in whole batches" in engine.remarks[0]
    model = load_language_model(str(tmp_path), device="cpu").model
    for answer in answers:
        assert isinstance(answer, Generation)
        ids, prompt = list(answer.samples[0].completion_ids or ()), list(answer.prompt_ids or ())
        made = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=8)
        assert ids == made[0, len(prompt) :].tolist()


def test_an_adapter_goes_when_the_last_that_runs_with_it_is_answered(
    engine: TransformersEngine, tiny_adapters: dict[str, Path]
) -> None:
    engine.load_adapter(RED, tiny_adapters[RED])
    alone = text(engine, RED)
    engine.submit(1, GenerationRequest("hello", GREEDY, RED))
    answers = dict(engine.step())
    engine.unload_adapter(RED)
    engine.submit(2, GenerationRequest("hello", GREEDY, RED))
    while engine.busy:
        answers.update(engine.step())

    assert isinstance(answers[2], AdapterError)
    begun = answers[1]
    assert isinstance(begun, Generation) and begun.samples[0].text == alone


async def pieces_of(engine: EngineProcess, request: IdsRequest) -> list[TokenPiece]:
    return [piece async for piece in engine.generate_ids(request)]


async def test_ids_go_in_and_come_out_as_they_are_sampled(tiny_model: Path) -> None:
    engine = EngineProcess(
        partial(TransformersEngine, partial(load_language_model, str(tiny_model))), max_batch=8, begin=begin_here
    )
    await engine.start()
    (whole,) = await engine.generate([GenerationRequest("hello", GREEDY)])
    assert isinstance(whole, Generation)
    ids = whole.prompt_ids or ()

    # two samples, told token by token
    pieces = await pieces_of(engine, IdsRequest(ids, GREEDY.model_copy(update={"n": 2}), keep=True))
    for sample in range(2):
        mine = [piece for piece in pieces if piece.sample == sample]
        assert [len(piece.ids) for piece in mine] == [1] * 8 + [0]
        assert tuple(token for piece in mine for token in piece.ids) == whole.samples[0].completion_ids
        assert [value for piece in mine for value in piece.logprobs] == pytest.approx(
            whole.samples[0].logprobs, abs=FLOAT32
        )
        assert [piece.finish_reason for piece in mine] == [None] * 8 + ["length"]

    # one that is given up after its first token
    async with aclosing(engine.generate_ids(IdsRequest(ids, Sampling(max_tokens=100)))) as endless:
        async for _ in endless:
            break
    assert await engine.generate([GenerationRequest("hello", GREEDY)]) == [whole]

    # and one that does not fit
    with pytest.raises(PromptTooLong):
        await pieces_of(engine, IdsRequest((5,) * 500, GREEDY))
    await engine.stop()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    engine = TransformersEngine(partial(load_language_model, str(tmp_path)))
    with pytest.raises(EngineError, match=r"has no config\.json"):
        engine.start()
    with pytest.raises(EngineError, match="start the engine first"):
        engine.generate([])
