"""A program of somebody else's, in a process of its own, over HTTP."""

from __future__ import annotations

import sys

import pytest

from ratchet.recorder.command import run_recorded
from ratchet.recorder.engine import ScriptedEngine
from ratchet.recorder.rollout import RecordedRollout
from tests.ratchet.conversation.speakers import SPECIAL, codec, template

AGENT = """
import sys, openai
client = openai.OpenAI()
messages = [{"role": "user", "content": "What is in it?"}]
for further in ("Sure?", "Why?"):
    stream = client.chat.completions.create(model="any", messages=messages, stream=True)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": further}]
print(said)
"""


def rollout() -> RecordedRollout:
    answers = iter(("A coin.", "Gold."))
    engine = ScriptedEngine(lambda prompt: [*codec().encode(next(answers)), SPECIAL.index("<|im_end|>")])
    return RecordedRollout(template("qwen2_5"), engine, model="small")


async def test_what_it_asks_is_recorded_and_what_it_prints_is_its_answer() -> None:
    sample = await run_recorded(rollout(), [sys.executable, "-c", AGENT], timeout_s=60)

    assert (sample.text, sample.status) == ("Gold.", "finished")
    assert sample.segments is not None and sample.usage is not None
    (segment,) = sample.segments
    assert [turn.content for turn in segment.turns] == ["What is in it?", "A coin.", "Sure?", "Gold."]
    assert (sample.usage.calls, sample.usage.breaks) == (2, {})


@pytest.mark.parametrize(
    ("code", "timeout_s", "status"),
    [
        ("print('half'); raise SystemExit(3)", 60, "failed"),
        ("__import__('signal').pause()", 0.2, "limit"),
        ("while True: print('x' * 9999)", 60, "limit"),
    ],
)
async def test_one_that_fails_or_does_not_end_has_a_status(code: str, timeout_s: float, status: str) -> None:
    sample = await run_recorded(rollout(), [sys.executable, "-c", code], timeout_s=timeout_s)

    assert (sample.status, sample.segments) == (status, None)
