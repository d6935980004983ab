"""Answers that are held to a form by the engine in this process, in both of its loops, and by a real vLLM."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ratchet.grammars.grammar import grammar_for
from ratchet.grammars.masks import Grammars
from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.tokenization import load_tokenizer
from ratchet.service.errors import EngineError, PromptRefused
from schemas.messages.task import AnswerFormat
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest
from services.agent.engines.tokens import TokenRequest
from services.agent.engines.transformers_engine import TransformersEngine
from services.agent.engines.vllm_engine import VllmEngine
from services.agent.engines.whole_batches import WholeBatches
from tests.services.agent.engines.recorded_vllm import RecordedVllm
from tests.services.agent.engines.test_decode_loop import loop_of, samples, until_idle

SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "yy", "zzz"]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORM = AnswerFormat(type="json_schema", json_schema=SCHEMA)
HELD = Sampling(n=8, max_tokens=40, temperature=1.3, grammar=grammar_for(FORM))


@pytest.fixture(scope="module")
def lm(tiny_model: Path) -> LanguageModel:
    return load_language_model(str(tiny_model), device="cpu")


@pytest.fixture
def engine(tiny_model: Path) -> TransformersEngine:
    engine = TransformersEngine(partial(load_language_model, str(tiny_model)), seed=3)
    engine.start()
    return engine


def generation_of(answer: Generation | EngineError) -> Generation:
    assert isinstance(answer, Generation), answer
    return answer


def test_each_answer_that_ends_has_the_form_beside_answers_that_are_free(engine: TransformersEngine) -> None:
    free = GenerationRequest("hello", Sampling(n=8, max_tokens=40))
    held = GenerationRequest("hello", Sampling(n=8, max_tokens=40), format=FORM)

    of_free, of_held = map(generation_of, engine.generate([free, held]))

    answers = [json.loads(sample.text) for sample in of_held.samples]
    assert all(set(answer) == {"a", "b"} and answer["a"] in ("x", "yy", "zzz") for answer in answers)
    assert len({sample.text for sample in of_held.samples}) > 2
    assert of_held.grammar == grammar_for(FORM)
    assert of_free.grammar is None
    assert not any(sample.text.startswith("{") for sample in of_free.samples)


@torch.inference_mode()
def masked_logprobs(lm: LanguageModel, prompt: list[int], ids: tuple[int, ...], temperature: float) -> list[float]:
    """By hand: of all tokens those count that the grammar lets go on."""
    logits = lm.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
    matcher = Grammars(lm.tokenizer, logits.shape[-1], lm.end_ids).begin(HELD.grammar.text).matcher  # type: ignore[union-attr]
    found = []
    for place, token in enumerate(ids):
        ends = lm.end_ids if matcher.is_accepting() else ()
        fitting = [one for one in range(logits.shape[-1]) if one in ends or matcher.validate_tokens([one])]
        found.append(float(logits[place, fitting].log_softmax(-1)[fitting.index(token)]))
        matcher.consume_token(token)
    return found


def whole_batches(lm: LanguageModel) -> WholeBatches:
    from services.agent.engines.row_adapters import RowAdapters

    return WholeBatches(lm.model, lm.tokenizer, RowAdapters(lm.model), end_ids=lm.end_ids, max_rows=8)


@pytest.mark.parametrize("make_loop", [loop_of, whole_batches])
def test_log_probabilities_are_those_among_the_tokens_that_were_allowed(lm: LanguageModel, make_loop: Any) -> None:
    loop, prompt = make_loop(lm), [5, 6, 7]
    grammars = Grammars(lm.tokenizer, 261, lm.end_ids)

    loop.submit(0, TokenRequest(prompt, HELD, begin_grammar=partial(grammars.begin, HELD.grammar.text)))  # type: ignore[union-attr]
    loop.submit(1, TokenRequest(prompt, Sampling(n=1, max_tokens=40)))
    held = samples(until_idle(loop)[0])

    for one in held[:2]:
        assert one.finish_reason == "stop"
        assert one.logprobs == pytest.approx(masked_logprobs(lm, prompt, one.ids, 1.3), abs=1e-4)


@pytest.mark.vllm
@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_so_are_those_of_a_real_vllm(server: RecordedVllm, tiny_model: Path, lm: LanguageModel) -> None:
    engine = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await engine.start()
    (answer,) = await engine.generate([GenerationRequest("hello", HELD, format=FORM)])
    await engine.stop()

    held = generation_of(answer)
    assert held.grammar == HELD.grammar
    for one in held.samples:
        assert set(json.loads(one.text)) == {"a", "b"}
    for one in held.samples[:2]:
        allowed = masked_logprobs(lm, list(held.prompt_ids or ()), tuple(one.completion_ids or ()), 1.3)
        assert one.logprobs == pytest.approx(allowed, abs=1e-4)


def test_an_answer_goes_on_behind_what_was_sampled_of_it(engine: TransformersEngine, lm: LanguageModel) -> None:
    begun = lm.tokenizer.encode('{"a": "yy', add_special_tokens=False)
    prompt = (5, 6, 7, *begun)

    engine.submit_ids(1, IdsRequest(prompt, HELD.model_copy(update={"n": 1}), begun=len(begun)))
    answers = dict(until_idle(engine))  # type: ignore[arg-type]

    said = generation_of(answers[1]).samples[0].text
    assert said in ('", "b": true}', '", "b": false}')


def test_what_can_not_be_held_to_is_refused_by_itself(engine: TransformersEngine) -> None:
    call = GenerationRequest("hello", Sampling(n=1, max_tokens=8), format=AnswerFormat(type="tool_call"))
    fine = GenerationRequest("hello", Sampling(n=1, max_tokens=8))

    refused, answered = engine.generate([call, fine])

    assert isinstance(refused, PromptRefused)
    assert isinstance(answered, Generation)


def test_a_grammar_that_takes_too_long_ends_its_request_alone(lm: LanguageModel) -> None:
    hard = {"type": "string", "pattern": "^(.{0,5000}){0,5000}$"}
    text = grammar_for(AnswerFormat(type="json_schema", json_schema=hard)).text
    grammars, loop = Grammars(lm.tokenizer, 261, lm.end_ids), loop_of(lm)

    loop.submit(0, TokenRequest([5], Sampling(n=2, max_tokens=60), begin_grammar=partial(grammars.begin, text)))
    loop.submit(1, TokenRequest([5], Sampling(n=2, max_tokens=20)))
    answers = until_idle(loop)

    assert samples(answers[1])
    assert isinstance(answers[0], PromptRefused) or all(one.finish_reason == "length" for one in samples(answers[0]))
