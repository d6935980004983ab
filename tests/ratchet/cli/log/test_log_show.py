"""One task as people read it: an answer of one call, a conversation turn by turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ratchet.cli.app import app
from ratchet.conversation.bridge import TOOL
from ratchet.conversation.conversation import Conversation
from ratchet.conversation.segments import sample_of
from schemas.messages.response import Sample
from tests.ratchet.conversation.speakers import codec, template
from tests.services.trainer.making_logs import line, write_log

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"box": "red"}'}}


def say(conversation: Conversation, history: list[dict[str, Any]], message: dict[str, Any], tokens: int) -> None:
    ids = [*codec().encode("a b c d e f g h")[: tokens - 1], codec().tokenizer.token_to_id("<|im_end|>")]
    assert len(ids) == tokens
    conversation.answer(conversation.ask(history, [TOOL]), message, ids, [-1.0] * tokens)
    history.append({"role": "assistant"} | message)


def rollout() -> Sample:
    conversation = Conversation(template("qwen2_5"))
    history: list[dict[str, Any]] = [{"role": "user", "content": "What is in it?"}]
    say(conversation, history, {"content": "", "reasoning_content": "I can't see.", "tool_calls": [CALL]}, 5)
    history.append({"role": "tool", "content": "a coin\nof gold", "tool_call_id": "c1"})
    say(conversation, history, {"content": "A coin."}, 4)
    compacted = [{"role": "user", "content": "What is in it?"}, {"role": "user", "content": "So far: a coin."}]
    say(conversation, compacted, {"content": "Gold."}, 1)
    return sample_of(conversation, "Gold.", program="looker", status="finished")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATCHET_LOGS_DIR", str(tmp_path))
    sample = rollout()
    unset = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs", "finish_reason"))
    told = {"segments": sample.segments, "program": "looker", "sample_status": "finished", "usage": sample.usage}
    talk = line("talk", 0, response="Gold.", score=0.5, **told, **unset)
    ended = line("late", None, response=None, score=None, group_size=0, status="expired", reason="too late")
    return write_log(tmp_path, [line("plain", 0), talk, line("talk", 1, score=None), ended])


def shown(*arguments: str) -> str:
    run = CliRunner().invoke(app, ["log", "show", *arguments])
    assert run.exit_code == 0, run.output
    return run.stdout


def test_a_conversation_is_shown_turn_by_turn_with_its_tokens_and_breaks(logs: Path) -> None:
    lines = shown("talk", "--sample", "1").splitlines()

    assert lines[0] == "talk · sample 1 of 2 · small v1.0.0 · score 0.500 · looker · finished"
    assert lines[1] == "  3 calls, 10 tokens sampled, 10 in the log; 1 rewritten"
    assert lines[2].startswith("  segment 1 of 2 · ") and "9 sampled and trained on" in lines[2]
    assert lines[3:9] == [
        "  user      What is in it?",
        "  assistant (I can't see.)",
        '            look({"box": "red"})  [5 tokens]',
        "  tool      a coin",
        "            of gold",
        "  assistant A coin.  [4 tokens]",
    ]
    assert lines[9].startswith("  segment 2 of 2 · rewritten · ") and "1 sampled and trained on, 0 given" in lines[9]
    assert lines[-2:] == ["  assistant Gold.  [1 token]", "  answer    Gold."]


def test_an_answer_of_one_call_and_a_task_without_one(logs: Path) -> None:
    assert shown("plain").splitlines() == [
        "plain · sample 1 of 2 · small v1.0.0 · score 1.000",
        "  user      sort: ba",
        "  assistant ab  [2 tokens]",
    ]
    assert shown("late").splitlines()[-1] == "  expired: too late"
    assert shown("talk").count("no score") == 1


def test_the_lines_themselves_and_one_that_is_not_there(logs: Path) -> None:
    (raw,) = shown("plain", "--json").splitlines()
    assert json.loads(raw)["task_id"] == "plain" and "segments" not in json.loads(raw)

    missing = CliRunner().invoke(app, ["log", "show", "nothing"])
    assert missing.exit_code == 2 and "no task 'nothing'" in missing.output
