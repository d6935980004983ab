"""One task as people read it: an answer of one call, a conversation turn by turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.conversation import Conversation
from ratchet.conversation.segments import sample_of
from ratchet.logs.trajectories import LONGEST_IN_LINE, TrajectoryFolder, path_of, taken_out
from schemas.messages.response import Sample, Usage
from schemas.messages.work import Arm, Sampling
from schemas.records.interaction import Interaction
from services.cli.app import app
from tests.ratchet.conversation.speakers import codec, template
from tests.services.trainer.making_logs import line, write_log

UNSET = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs", "finish_reason"))
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"box": "red"}'}}


def say(conversation: Conversation, history: list[dict[str, Any]], message: dict[str, Any], tokens: int) -> None:
    ids = [*codec().encode("a b c d e f g h")[: tokens - 1], codec().tokenizer.token_to_id("<|im_end|>")]
    assert len(ids) == tokens
    call = conversation.ask(history, [TOOL])
    conversation.answer(call, message, ids, [-1.0] * tokens)
    call.seconds = 0.26 if tokens == 4 else None
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
    told = {"segments": sample.segments, "program": "looker", "sample_status": "finished", "usage": sample.usage}
    talk = line("talk", 0, response="Gold.", score=0.5, **told, **UNSET)
    ended = line("late", None, response=None, score=None, group_size=0, status="expired", reason="too late")
    return write_log(tmp_path, [line("plain", 0), talk, line("talk", 1, score=None), ended])


def shown(*arguments: str) -> str:
    run = CliRunner().invoke(app, ["log", "show", *arguments])
    assert run.exit_code == 0, run.output
    return run.stdout


def test_a_conversation_is_shown_turn_by_turn_with_its_tokens_and_breaks(logs: Path) -> None:
    lines = shown("talk", "--sample", "0").splitlines()

    assert lines[0] == "talk · sample 0 of 2 (counted from 0) · small v1.0.0 · score 0.500 · looker · finished"
    assert lines[1:3] == ["  3 calls, 10 tokens sampled, 10 in the log; 1 rewritten", "  may be trained on"]
    assert lines[3].startswith("  segment 1 of 2 · ") and "9 sampled, " in lines[3]
    first = (rollout().segments or ())[0]
    before = len(first.prompt_ids)
    between = before + first.spans[1][0]
    assert lines[4:10] == [
        "  user      What is in it?",
        "  assistant (I can't see.)",
        f'            look({{"box": "red"}})  [5 tokens behind {before}]',
        "  tool      a coin",
        "            of gold",
        f"  assistant A coin.  [4 tokens behind {between}, 0.3 s]",
    ]
    assert lines[10].startswith("  segment 2 of 2 · rewritten · ") and "1 sampled, 0 given" in lines[10]
    assert lines[-2].startswith("  assistant Gold.  [1 token behind ") and lines[-1] == "  answer    Gold."


def test_a_conversation_that_is_logged_apart_is_shown_the_same_and_one_that_is_gone_is_said(logs: Path) -> None:
    before = shown("talk", "--sample", "0")
    segments = rollout().segments
    assert segments is not None
    more = LONGEST_IN_LINE - len(segments[0].prompt_ids)
    long = segments[0].model_copy(update={"prompt_ids": (7,) * LONGEST_IN_LINE})
    whole = Interaction.decode(line("long", 0, segments=(long, segments[1]), response="Gold.", **UNSET))
    row, content = taken_out(whole)
    assert row.trajectory is not None and content is not None
    TrajectoryFolder(logs).write({row.trajectory.sha256: content}, 0)
    write_log(logs, [row.encode() + b"\n"])

    meant = before
    for kept in segments[0].spans:
        given = len(segments[0].prompt_ids) + kept[0]
        meant = meant.replace(f" behind {given:,}", f" behind {given + more:,}", 1)
    assert shown("long").splitlines()[3:] == meant.splitlines()[4:]
    assert json.loads(shown("long", "--json"))["trajectory"]["sampled_tokens"] == 10

    path_of(logs, row.trajectory.sha256).unlink()
    told = shown("long")
    assert "can't be read: it is not there" in told and told.splitlines()[-1].endswith("Gold.  [10 tokens]")


def test_an_answer_of_one_call_and_a_task_without_one(logs: Path) -> None:
    assert shown("plain").splitlines() == [
        "plain · sample 0 of 2 (counted from 0) · small v1.0.0 · score 1.000",
        "  may be trained on",
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
    beyond = CliRunner().invoke(app, ["log", "show", "talk", "--sample", "2"])
    assert beyond.exit_code == 2 and "task 'talk' has no sample 2: it has 0, 1, counted from 0" in beyond.output


def test_how_a_rollout_ended_is_said_and_of_what_teaches_nothing_why(logs: Path) -> None:
    ended = {"sample_status": "failed", "sample_says": "it exited with 127", "usage": Usage()}
    lines = [
        line("crashed", 0, **ended, **UNSET),
        line("censored", 0, select="first-passing"),
        line("golden", 0, arm=Arm(sequence=0, experiment_id="validation:small-3")),
        line("greedy", 0, sampling=Sampling(temperature=0.0)),
        line("gone", 0, sample_status="cancelled", score=None, score_status="cancelled"),
    ]
    write_log(logs, lines)

    assert shown("crashed").splitlines()[1:4] == [
        "  it exited with 127",
        "  0 calls, 0 tokens sampled, 0 in the log; no breaks",
        "  not trained on: there are no tokens of it",
    ]
    for task, why in {
        "censored": "first-passing",
        "golden": "the fleet's own",
        "greedy": "temperature 0",
        "gone": "called off",
    }.items():
        (told,) = [one for one in shown(task).splitlines() if "trained on" in one]
        assert told.startswith("  not trained on: ") and why in told, told
