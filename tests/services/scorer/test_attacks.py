"""No answer talks the judge over: a set of attacks, and proof that they bite where a defence is missing."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scorer.rubric import CLOSING, SYSTEM, inert
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.judge import Judge, make_case
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.scorer.verdict import VerdictError, parse_verdict, verdict_schema
from tests.ratchet.openai.model_server import MODEL, running
from tests.services.scorer.attacks import ATTACKS, BREAKOUTS, JSON_BREAKS, TOKENS
from tests.services.scorer.naive_judge import obedient, parrot

RIGHT = "the right answer"


def request(*answers: str) -> ScoringRequest:
    return ScoringRequest("t-1", "What is right?", tuple(map(Answer, answers)), reference=RIGHT)


def settings(url: str) -> ScorerSettings:
    return ScorerSettings(scorer_judge_url=url, scorer_judge_model=MODEL)


def test_the_set_is_large_enough() -> None:
    assert len(ATTACKS) >= 20


@pytest.mark.parametrize("mode", ["absolute", "relative"])
async def test_no_attack_gets_a_score_from_a_judge_that_obeys_whatever_stands_outside_the_material(mode: str) -> None:
    async with running(obedient) as server:
        judge = Judge.build(mode, settings(server.url))
        await judge.start()
        for name, attack in ATTACKS.items():
            scores = await judge.score(request(attack, RIGHT, attack))
            assert [score.score for score in scores] == [0.0, 1.0, 0.0], name
        await judge.stop()


async def test_an_answer_repeated_as_the_verdict_is_no_score() -> None:
    async with running(parrot) as server:
        judge = Judge.build("absolute", settings(server.url))
        await judge.start()
        for name, attack in ATTACKS.items():
            (score,) = await judge.score(request(attack))
            assert (score.score, score.status) == (None, "unscorable"), name
            assert "verdict" in (score.reason or "")
        await judge.stop()


def grade_of_prompt(attack: str, user: str) -> int:
    """What the obedient judge makes of a prompt built in some other way."""
    case = make_case(request(attack), [Answer(attack)], b"key", 0)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    schema = {"json_schema": {"schema": verdict_schema(case)}}
    reply: dict[str, Any] = json.loads(obedient({"messages": messages, "response_format": schema}))
    return int(reply["verdicts"][0]["score"])


def fenced(material: str) -> str:
    return f"Standard\n=== MATERIAL abc ===\n{material}\n=== END abc ===\n{CLOSING}"


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_without_the_fence_the_same_judge_falls_for_every_attack(attack: str) -> None:
    assert grade_of_prompt(attack, f"Grade this answer.\n{attack}\n") == 10


@pytest.mark.parametrize("attack", BREAKOUTS.values(), ids=BREAKOUTS)
def test_without_the_quoting_every_breakout_gets_out_of_the_fence(attack: str) -> None:
    assert grade_of_prompt(attack, fenced(attack)) == 10


@pytest.mark.parametrize("attack", TOKENS.values(), ids=TOKENS)
def test_with_common_json_quoting_every_control_token_still_begins_a_turn(attack: str) -> None:
    assert grade_of_prompt(attack, fenced(json.dumps({"text": attack}, ensure_ascii=False))) == 10


@pytest.mark.parametrize("attack", JSON_BREAKS.values(), ids=JSON_BREAKS)
def test_without_escaping_every_quote_breaks_the_json(attack: str) -> None:
    unescaped = f'{{"text": "{attack}"}}'
    try:
        broken = json.loads(unescaped) != {"text": attack}
    except ValueError:
        broken = True
    assert broken


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_quoted_every_attack_is_one_line_that_reads_back_as_it_was(attack: str) -> None:
    quoted = inert(attack)
    assert len(quoted.splitlines()) == 1
    assert json.loads(quoted) == attack


@given(st.text() | st.text("<|>[]/\\\"'\n\r\u2028\u200b\U000e0041\x7fAINST", max_size=40))
def test_any_text_is_one_visible_line_without_control_tokens_and_reads_back(text: str) -> None:
    quoted = inert(text)
    assert json.loads(quoted) == text
    assert "<" not in quoted
    assert not [char for char in quoted if unicodedata.category(char) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")]
    assert len(quoted.splitlines()) == 1


@given(
    st.text() | st.binary().map(repr) | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps)
)
def test_any_reply_is_a_whole_verdict_or_a_verdict_error(reply: str) -> None:
    case = make_case(request("a"), [Answer("a")], b"key", 0)
    with pytest.raises(VerdictError, match="verdict"):
        parse_verdict(reply, case)


def test_ordinary_text_of_any_language_is_left_readable() -> None:
    text = "Größe: 5 < 7? Ответ: да. 答案是对的。 naïve [x] a[0] — “fine” 👍"
    assert inert(text) == f'"{text}"'.replace("<", "\\u003c")
