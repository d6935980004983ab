"""The engine that says what a file says: what it takes for heard, its ids, and what it goes on with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer

from ratchet.adapters.check import base_fault
from ratchet.service.errors import EngineError, SettingsError
from schemas.messages.work import Sampling
from services.agent.engines.engine import IdsRequest, TokenPiece
from services.agent.engines.scripted import Script, ScriptedEngine, Turn
from services.agent.settings import AgentSettings
from tests.programs import REPOSITORY
from tests.ratchet.adapters.making_adapters import BASE

PLAYED = REPOSITORY / "examples" / "played-model"
TURNS = (Turn(heard="first", says=("one", "another")), Turn(heard="second", says=("two",)))


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(Script(turns=TURNS), PLAYED, Random(1))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(PLAYED / "tokenizer.json"))


async def generate(engine: ScriptedEngine, ids: Sequence[int], **given: Any) -> list[TokenPiece]:
    request = IdsRequest(tuple(ids), Sampling(**{"n": 1, "max_tokens": 100} | given))
    return [piece async for piece in engine.generate_ids(request)]


def text(tokenizer: Tokenizer, pieces: Sequence[TokenPiece]) -> str:
    return tokenizer.decode([token for piece in pieces for token in piece.ids], skip_special_tokens=True)


async def test_it_hears_what_was_said_since_its_last_answer_alone(engine: ScriptedEngine, tokenizer: Tokenizer) -> None:
    prompt = "<|user|>first<|end|><|assistant|>one<|end|><|user|>second<|end|><|assistant|>"

    assert text(tokenizer, await generate(engine, tokenizer.encode(prompt).ids)) == "two"
    unheard = tokenizer.encode("<|user|>third<|end|><|assistant|>").ids
    assert text(tokenizer, await generate(engine, unheard)) == "I have nothing to say to that."


async def test_its_tokens_end_with_the_one_that_completes_a_stop_string(
    engine: ScriptedEngine, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode("<|user|>third<|end|><|assistant|>").ids
    whole = await generate(engine, ids)
    stopped = await generate(engine, ids, stop=("nothing",))

    assert stopped[-1].finish_reason == "stop" and stopped[:-1] == whole[: len(stopped) - 1]
    assert "nothing" in text(tokenizer, stopped) and "nothing" not in text(tokenizer, stopped[:-2])


async def test_each_way_has_its_chance_and_says_so(engine: ScriptedEngine, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|user|>first<|end|><|assistant|>").ids
    drawn = [await generate(engine, ids) for _ in range(20)]

    assert {text(tokenizer, pieces) for pieces in drawn} == {"one", "another"}
    for pieces in drawn:
        assert math.exp(sum(sum(piece.logprobs) for piece in pieces)) == pytest.approx(0.5)
        assert pieces[-1].finish_reason == "stop"
    greedy = [await generate(engine, ids, temperature=0) for _ in range(5)]
    assert {text(tokenizer, pieces) for pieces in greedy} == {"one"}
    assert (await generate(engine, ids, max_tokens=2))[-1].finish_reason == "length"


async def test_it_goes_on_with_an_answer_that_has_begun(engine: ScriptedEngine, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|user|>first<|end|><|assistant|>anot").ids

    assert text(tokenizer, await generate(engine, ids)) == "her"
    behind_a_line = tokenizer.encode("<|user|>second<|end|><|assistant|>\n").ids
    assert text(tokenizer, await generate(engine, behind_a_line)) == "two"


def test_a_script_that_can_not_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RATCHET_AGENT_SCRIPT is not set"):
        ScriptedEngine.from_settings(AgentSettings(agent_model=str(PLAYED)))
    with pytest.raises(SettingsError, match=r"script\.toml can't be read"):
        Script.read(tmp_path / "script.toml")
    (tmp_path / "script.toml").write_text('[[turns]]\nheard = "x"\n')
    with pytest.raises(SettingsError, match=r"script\.toml: .*says"):
        Script.read(tmp_path / "script.toml")
    with pytest.raises(EngineError, match="has no tokenizer for a script"):
        ScriptedEngine(Script(turns=TURNS), tmp_path, Random(1))


def test_the_tokenizer_of_a_played_model_is_known_to_whoever_asks() -> None:
    assert AgentSettings(agent_engine="scripted", agent_model=str(PLAYED)).tokenizer_name == str(PLAYED)


def test_no_model_s_adapter_is_one_for_a_script() -> None:
    assert "the agent runs scripted" in str(base_fault(BASE, ScriptedEngine.base))
