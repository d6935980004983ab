"""What a Reward becomes in the log: the bytes it always was, with every field of a task, or left out on purpose."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet.logs.best_answer import result_of
from ratchet.logs.groups import teaches_nothing
from ratchet.service.errors import Reject
from schemas.messages.base import Metadata
from schemas.messages.response import GenerationLatencies, Response, Sample, Segment, ToolAudit, Turn, Usage
from schemas.messages.reward import Reward, SampleScore, ScorerIdentity, ScoringLatencies
from schemas.messages.task import AnswerFormat, ChatMessage, Constraints, Task, Tool, ToolFunction
from schemas.messages.work import Arm, RoleVersion, Sampling, Work
from schemas.messages.workspace import Artifact, Workspace
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import Entry
from services.orchestrator.tasks.settlement import (
    NOT_LOGGED,
    OF_ANSWERS,
    OF_WORK,
    check_adapter,
    completed_response,
    ending,
    settle,
)
from services.orchestrator.tasks.task_history import history

LINES = Path(__file__).parent / "logged_lines.jsonl"
NOW = datetime(2026, 3, 1, 12, 0, 30, 250000, UTC)
WORK = Work(
    task_id="t-1",
    input=(ChatMessage(role="system", content="Sort."), ChatMessage(role="user", content="dbca é")),
    metadata=Metadata.model_validate({"timestamp": "2026-03-01T12:00:00Z", "source": "test", "shop": {"id": 7}}),
    agent_id="small",
    reference="abcd",
    criteria="sorted",
    samples=3,
    temperature=0.7,
    top_p=0.5,
    max_tokens=64,
    adapter_version="v1.0.2",
    evaluation="exam",
    work_to="reply.mine",
    task_type="sort",
    session_id="s-1",
    priority=6,
    deadline=datetime(2026, 3, 1, 13, 0, 0, 0, UTC),
    arm=Arm(adapter_version="v1.0.2", adapter_sha256="a" * 64, experiment_id="e", is_candidate=True, sequence=41),
    sampling=Sampling(n=3, temperature=0.7),
    admitted_at=datetime(2026, 3, 1, 12, 0, 0, 0, UTC),
    reply_to="mine",
    correlation_id="c-1",
)
BARE = Work(
    task_id="t-2",
    input="dbca",
    agent_id="small",
    deadline=WORK.deadline,
    arm=Arm(sequence=42),
    sampling=Sampling(),
    admitted_at=WORK.admitted_at,
)
RESPONSE = Response(
    task_id="t-1",
    response="abcd",
    agent_id="small",
    metadata=Metadata(source="agent"),
    samples=(
        Sample(text="abcd", completion_ids=(1, 2), logprobs=(-0.5, -0.25), finish_reason="stop"),
        Sample(text="dcba", completion_ids=(3,), logprobs=(-1.0,), finish_reason="length"),
        Sample(text=""),
    ),
    prompt_ids=(9, 8),
    sampling=Sampling(n=3, temperature=0.7, max_tokens=64),
    adapter_version="v1.0.2",
    adapter_sha256="a" * 64,
    engine="torch",
    latencies=GenerationLatencies(queue_s=0.5, generate_s=1.5, attempts=2),
    work=WORK,
)
REWARD = Reward(
    task_id="t-1",
    score=1.0,
    scoring_agent_id="judge",
    scores=(SampleScore(score=1.0), SampleScore(score=None, status="timeout", reason="too slow")),
    scorer=ScorerIdentity(id="judge", revision="r1", rubric_sha256="b" * 64),
    latencies=ScoringLatencies(queue_s=0.25, score_s=0.75),
    scored=RESPONSE,
)


def lines() -> list[Interaction]:
    draft = completed_response(Response(task_id="t-2", response="dcba", agent_id="other"), BARE)
    failed = Response(task_id="t-1", response="", agent_id="small", error="no room", work=WORK)
    drafted = Reward(task_id="t-2", score=0.5, scoring_agent_id="judge")
    return [
        *settle(REWARD, RESPONSE, WORK, NOW),
        *settle(drafted, draft, BARE, NOW),
        *settle(Reward(task_id="t-1", scoring_agent_id="judge"), failed, WORK, NOW),
        ending(WORK, "expired", "no answer within 3600 s", NOW),
        ending(BARE, "expired", "no answer", NOW),
    ]


def test_the_lines_are_the_bytes_that_they_always_were() -> None:
    assert [line.encode() for line in lines()] == LINES.read_bytes().splitlines()


def test_the_lines_say_nothing_that_the_schema_would_not_let_in() -> None:
    for line in lines():
        assert Interaction.model_validate(dict(line)) == line
        assert list(line.__dict__) == list(Interaction.model_fields)


def test_each_line_says_what_the_reference_is_worth_as_an_answer() -> None:
    reward = REWARD.model_copy(update={"reference_score": 1.0})

    assert [line.reference_score for line in settle(reward, RESPONSE, WORK, NOW)] == [1.0, 1.0, 1.0]


def test_a_conversation_is_logged_with_its_segments_and_shown_turn_by_turn() -> None:
    asked, said = Turn(role="user", content="what?"), Turn(role="assistant", content="that", span=0, seconds=0.5)
    segment = Segment(
        prompt_ids=(9, 8), completion_ids=(1, 2, 3), spans=((0, 2),), logprobs=(-0.5, -0.25), turns=(asked, said)
    )
    talk = Sample(text="that", segments=(segment,), status="limit", program="looker", usage=Usage(calls=1))
    response = RESPONSE.model_copy(update={"samples": (talk, Sample(text="dcba"))})

    first, second = (Interaction.decode(line.encode()) for line in settle(REWARD, response, WORK, NOW))

    assert (first.segments, first.sample_status, first.program, first.usage) == (
        (segment,),
        "limit",
        "looker",
        Usage(calls=1),
    )
    assert (first.completion_ids, first.logprobs, first.sampled_tokens, second.sampled_tokens) == (None, None, 2, None)
    assert not {"segments", "sample_status", "program", "usage"} & json.loads(second.encode()).keys()
    known = Entry(sequence=42, task_id="t-1", deadline=0.0, logged=2, work=None, result=None)
    (shown, _) = history(known, WORK, [first, second]).samples
    assert shown.segments is not None
    (part,) = shown.segments
    assert (part.prompt_tokens, part.sampled_tokens, part.given_tokens, part.broke) == (2, 2, 1, None)
    assert [(turn.role, turn.content, turn.tokens, turn.prompt_tokens, turn.seconds) for turn in part.turns] == [
        ("user", "what?", None, None, None),
        ("assistant", "that", 2, 2, 0.5),
    ]
    assert (shown.tokens, shown.ended, shown.program) == (2, "limit", "looker")


def test_an_answer_ends_before_a_stop_string_whoever_gave_it_and_a_programs_as_the_program_ended_it() -> None:
    ids = {"completion_ids": (1, 2), "logprobs": (-0.5, -0.25)}
    uncut = Sample(text="ab\ncd", finish_reason="length", token_texts=("ab\n", "cd"), **ids)  # type: ignore[arg-type]
    ours = Sample(text="ab", finish_reason="stop", stopped_at="\n", **ids)  # type: ignore[arg-type]
    printed = Sample(text="ab\ncd", finish_reason="length", program="mine")
    work = WORK.model_copy(update={"sampling": Sampling(n=3, stop=("d", "\n"))})
    response = RESPONSE.model_copy(update={"samples": (uncut, ours, printed)})

    lines = settle(REWARD, response, work, NOW)
    drafted = completed_response(Response(task_id="t-1", response="ab\ncd", agent_id="other"), work)
    listed = completed_response(response.model_copy(update={"work": None}), work)

    told = [(line.response, line.finish_reason, line.stopped_at, line.sampled_tokens) for line in lines]
    assert told == [("ab", "stop", "\n", None), ("ab", "stop", "\n", 2), ("ab\ncd", "length", None, None)]
    assert (teaches_nothing(lines[0]), lines[0].token_texts) == ("there are no tokens of it", None)
    assert [(one.text, one.stopped_at) for one in drafted.samples] == [(drafted.response, "\n")] == [("ab", "\n")]
    assert [one.sampled_tokens for one in listed.samples] == [2, 2, None]


def test_an_artifact_an_audit_and_the_parts_of_a_score_are_logged_and_the_best_ones_are_the_users() -> None:
    artifact = Artifact(patch="diff --git a/a b/a\n", left_out={"core": "too large"})
    audit = ToolAudit(operations={"file_write": 1}, changed=("a",), count=3, sha256="0" * 64, lines=("{}",))
    left = Sample(text="done", artifact=artifact, tool_audit=audit)
    response = RESPONSE.model_copy(update={"samples": (Sample(text="dcba"), left)})
    scores = (SampleScore(score=0.25), SampleScore(score=0.5, parts={"tests": 1.0, "style": 0.5}))

    logged = settle(REWARD.model_copy(update={"scores": scores}), response, WORK, NOW)
    first, second = (Interaction.decode(line.encode()) for line in logged)

    assert (second.artifact, second.score_parts) == (artifact, {"tests": 1.0, "style": 0.5})
    assert not {"artifact", "score_parts", "tool_audit"} & json.loads(first.encode()).keys()
    result = result_of([first, second])
    assert (result.artifact, second.tool_audit) == (artifact, audit)
    assert result.tool_audit == audit.model_copy(update={"lines": ()})
    shown = history(
        Entry(sequence=42, task_id="t-1", deadline=0.0, logged=2, work=None, result=None), WORK, [first, second]
    )
    assert (shown.samples[1].artifact, shown.samples[1].parts) == (artifact, second.score_parts)
    assert shown.samples[1].tool_audit == audit


@pytest.mark.parametrize(
    ("claimed", "refused"),
    [
        ({}, False),
        ({"adapter_version": None}, False),
        ({"adapter_sha256": None}, False),
        ({"adapter_version": None, "adapter_sha256": None}, False),
        ({"adapter_version": "v1.0.0"}, True),
        ({"adapter_sha256": "b" * 64}, True),
    ],
)
def test_what_answered_is_what_was_admitted(claimed: dict[str, str | None], refused: bool) -> None:
    response = RESPONSE.model_copy(update=claimed)

    with pytest.raises(Reject, match="was assigned to v1") if refused else nullcontext():
        check_adapter(response, WORK)

    assert {(line.adapter_version, line.adapter_sha256) for line in settle(REWARD, response, WORK, NOW)} == {
        ("v1.0.2", "a" * 64)
    }


@pytest.mark.parametrize(("named", "refused"), [("bold", False), (None, False), ("careful", True)])
def test_an_answer_by_another_program_than_the_one_that_is_tried_is_refused(named: str | None, refused: bool) -> None:
    tried = WORK.arm.model_copy(update={"program": "bold", "program_revision": "c" * 64})
    response = RESPONSE.model_copy(update={"samples": (Sample(text="a", program=named),)})

    with pytest.raises(Reject, match="assigned to program bold") if refused else nullcontext():
        check_adapter(response, WORK.model_copy(update={"arm": tried}))


@pytest.mark.parametrize(("role", "refused"), [("writer", False), (None, True)])
def test_an_answer_of_a_team_that_does_not_say_who_sampled_what_is_refused(role: str | None, refused: bool) -> None:
    played = WORK.arm.model_copy(update={"roles": {"writer": RoleVersion(agent_id="small")}})
    segment = Segment(prompt_ids=(1,), completion_ids=(2,), spans=((0, 1),), logprobs=(-0.5,), role=role)
    response = RESPONSE.model_copy(update={"samples": (Sample(text="a", segments=(segment,)),)})

    with pytest.raises(Reject, match="update the runner") if refused else nullcontext():
        check_adapter(response, WORK.model_copy(update={"arm": played}))


def test_every_field_of_a_task_is_in_its_lines_or_left_out_on_purpose() -> None:
    assert {*OF_WORK, *NOT_LOGGED} >= set(Task.model_fields)
    assert NOT_LOGGED.isdisjoint(Interaction.model_fields)


def test_what_a_line_says_of_its_task_is_what_the_task_says() -> None:
    # given a task that says something in every field
    looking = Tool(function=ToolFunction(name="look", description="Into a file."))
    more = {
        "tools": (looking,),
        "needs_token_texts": True,
        "needs_usage": True,
        "local_only": True,
        "programs": ("aider",),
        "registered_agent": "bot",
        "kept_apart": True,
        "approval": "before-finish",
        "constraints": Constraints(calls=3),
        "profile": "mixed",
        "role_versions": {"writer": "v1.0.1"},
        "workspace": Workspace(files={}),
    }
    more |= {"select": "first-passing", "pass_score": 0.75, "stop": ("\n",), "format": AnswerFormat(type="json_object")}
    work = WORK.model_copy(update=more)
    assert [name for name, field in Task.model_fields.items() if getattr(work, name) == field.default] == []

    # then its lines say the same, whatever its ending
    answered, failed = settle(REWARD, RESPONSE, work, NOW)[0], ending(work, "failed", "no room", NOW)
    assert differing(answered, work) == {"sampling"}, "it is as it was sampled in the end"
    assert differing(failed, work) == OF_ANSWERS


def differing(line: Interaction, work: Work) -> set[str]:
    return {name for name in OF_WORK if getattr(line, name) != getattr(work, name)}
