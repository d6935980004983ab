"""Runs on answers that were held to a form: the engine's own samples, and the trainer's replay of their masks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratchet.models.loading import content_sha256, load_language_model
from ratchet.runs.store import RunStore
from schemas.messages.response import Sample, Segment
from schemas.messages.task import AnswerFormat
from schemas.messages.training import TrainRequest
from schemas.messages.work import Sampling, SpanGrammar
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.transformers_engine import TransformersEngine
from services.trainer.settings import TrainerSettings
from tests.services.trainer.forked_runs import ForkedRuns
from tests.services.trainer.making_logs import line, write_log
from tests.services.trainer.run.test_disturbed_runs import KNOBS, environment_of
from tests.services.trainer.run.test_training_run import folder, train

FORM = AnswerFormat(
    type="json_schema",
    json_schema={
        "type": "object",
        "properties": {"a": {"enum": ["x", "yy", "zzz"]}, "b": {"type": "integer", "minimum": 0, "maximum": 999}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
EACH = 6


@pytest.fixture(scope="module")
def groups(base_model: Path) -> list[Generation]:
    """Twelve, of which every fourth is free."""
    engine = TransformersEngine(partial(load_language_model, str(base_model), device="cpu"), seed=7)
    engine.start()
    asked = [
        GenerationRequest(f"order {number}", Sampling(n=EACH, max_tokens=32), format=FORM if number % 4 else None)
        for number in range(12)
    ]
    answered = engine.generate(asked)
    return [answer for answer in answered if isinstance(answer, Generation)]


def score_of(sample: Sample) -> float:
    return sum(token < 100 for token in sample.completion_ids or ()) / len(sample.completion_ids or ())


def lines_of(base_model: Path, groups: Iterable[Generation], *, told: bool = True) -> list[bytes]:
    """`told`: the lines have the grammar that their answers were held to."""
    lines = []
    for number, group in enumerate(groups):
        sampling = Sampling(n=EACH, max_tokens=32, grammar=group.grammar if told else None)
        for index, sample in enumerate(group.samples):
            fields: dict[str, Any] = {
                "input": f"order {number}",
                "response": sample.text,
                "score": score_of(sample),
                "prompt_ids": group.prompt_ids,
                "completion_ids": sample.completion_ids,
                "logprobs": sample.logprobs,
                "group_size": EACH,
                "sampling": sampling,
                "engine": f"transformers model@{content_sha256(base_model)[:12]}",
                "adapter_sha256": None,
            }
            lines.append(line(f"t-{number}", index, **fields))
    return lines


def as_conversations(lines: list[bytes]) -> list[bytes]:
    """The same answers, each the span of a segment behind tokens that were given."""
    return [_as_conversation(json.loads(one)) for one in lines]


def _as_conversation(row: dict[str, Any]) -> bytes:
    grammar = row["sampling"].pop("grammar", None)
    ids, logprobs = row.pop("completion_ids"), row.pop("logprobs")
    prompt = row.pop("prompt_ids")
    segment = Segment(
        prompt_ids=prompt[:1],
        completion_ids=[*prompt[1:], *ids],
        spans=[(len(prompt) - 1, len(prompt) - 1 + len(ids))],
        logprobs=logprobs,
        grammars=[SpanGrammar(**grammar, spans=(0,))] if grammar else (),
    )
    return json.dumps(row | {"segments": [segment.model_dump(mode="json")]}).encode() + b"\n"


@pytest.mark.parametrize(("algorithm", "in_segments"), [("grpo", False), ("weighted-sft", True)])
def test_with_the_mask_the_first_step_finds_the_logged_log_probabilities(
    settings: TrainerSettings,
    base_model: Path,
    groups: list[Generation],
    tmp_path: Path,
    algorithm: str,
    in_segments: bool,
) -> None:
    lines = lines_of(base_model, groups)
    logs = write_log(tmp_path / "logs", as_conversations(lines) if in_segments else lines)

    outcome = train(settings.model_copy(update={"logs_dir": logs}), algorithm=algorithm)

    assert outcome.status == "trained", outcome.reason
    report = json.loads((folder(settings, outcome) / "training_report.json").read_text())
    assert report["parent_match"]["gap"] < 1e-4
    assert report["steps"][0]["gap"] < 1e-4
    assert report["steps"][-1]["gap"] > 1e-3


def test_without_the_mask_the_same_answers_are_refused(
    settings: TrainerSettings, base_model: Path, groups: list[Generation], tmp_path: Path
) -> None:
    logs = write_log(tmp_path / "logs", lines_of(base_model, groups, told=False))

    outcome = train(settings.model_copy(update={"logs_dir": logs}))

    assert outcome.status == "refused"
    assert float(outcome.metrics["gap"]) > 0.5  # type: ignore[arg-type]


def test_killed_and_taken_up_again_it_replays_the_same_masks(
    settings: TrainerSettings, base_model: Path, groups: list[Generation], forks: ForkedRuns, tmp_path: Path
) -> None:
    of_grammar = settings.model_copy(update={"logs_dir": write_log(tmp_path / "logs", lines_of(base_model, groups))})
    asked: dict[str, Any] = {"agent_id": "small", "hyperparameters": KNOBS, "seed": 11}
    store = RunStore(settings.adapters_dir)
    calm, killed = (store.record(TrainRequest(request_id=name, **asked)) for name in ("calm", "often-killed"))

    # both in processes of their own: here the engine has set the number of threads
    attempts = ((calm, ""), (killed, "checkpointed:2"), (killed, ""))
    ended = [forks.attempt(job, environment_of(of_grammar), step) for job, step in attempts]
    assert ended == ["ended", "killed", "ended"]
    assert calm.outcome is not None and killed.outcome is not None
    assert killed.outcome.adapter_sha256 == calm.outcome.adapter_sha256


def test_a_learner_that_replays_no_grammars_says_so(
    settings: TrainerSettings, base_model: Path, groups: list[Generation], tmp_path: Path
) -> None:
    logs = write_log(tmp_path / "logs", lines_of(base_model, groups))

    outcome = train(settings.model_copy(update={"logs_dir": logs}), algorithm="kto", hyperparameters={"threshold": 0.5})

    assert outcome.status == "refused"
    assert "replays no grammars" in (outcome.reason or "")
