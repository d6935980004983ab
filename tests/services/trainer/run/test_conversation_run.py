"""A whole run on a log of conversations, which the tiny model held with an agent of several calls."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ratchet.conversation.conversation import Conversation
from ratchet.conversation.segments import sample_of
from ratchet.models.tokenization import chat_template, load_tokenizer
from schemas.messages.response import Sample
from services.trainer.settings import TrainerSettings
from tests.services.trainer.making_logs import line, write_log
from tests.services.trainer.run.test_training_run import folder, train
from tests.services.trainer.tiny_policy import END, loaded, sampled, score_of

TASKS, SAMPLES = 8, 4


def rollout(model: Any, spoken: Any, task: int, sample: int, rng: random.Random) -> tuple[Sample, float]:
    """Asks two or three times; the third time with its past rewritten."""
    conversation = Conversation(spoken)
    history: list[dict[str, Any]] = [{"role": "user", "content": f"sort: {task}"}]
    tokens: list[int] = []
    for turn in range(2 + sample % 2):
        call = conversation.ask(history)
        ((ids, logprobs),) = sampled(model, [call.prompt_ids], 1, seed=rng.randrange(2**31))[0]
        text = spoken.codec.decode([token for token in ids if token != END])
        conversation.answer(call, {"content": text}, ids, logprobs)
        history += [{"role": "assistant", "content": text}, {"role": "user", "content": str(turn)}]
        if turn == 1:
            history = [history[0], {"role": "user", "content": "so far"}]
        tokens += ids
    return sample_of(conversation, "done", program="toy"), score_of(tokens)


@pytest.fixture(scope="module")
def talks(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer, model, rng = load_tokenizer(base_model), loaded(base_model, None), random.Random(2)
    spoken = chat_template(tokenizer, [END])
    lines = []
    for task in range(TASKS):
        for index in range(SAMPLES):
            sample, score = rollout(model, spoken, task, index, rng)
            fields = {"segments": sample.segments, "program": sample.program, "usage": sample.usage}
            unset = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs", "finish_reason"))
            lines.append(
                line(f"t{task}", index, response=str(index), score=score, group_size=SAMPLES, **fields, **unset)
            )
    return write_log(tmp_path_factory.mktemp("talks"), lines)


def test_conversations_are_learned_from_and_the_report_says_how_they_were_cut(
    settings: TrainerSettings, talks: Path
) -> None:
    outcome = train(settings.model_copy(update={"logs_dir": talks}))

    assert outcome.status == "trained", outcome.reason
    report = json.loads((folder(settings, outcome) / "training_report.json").read_text())
    assert report["parent_match"]["gap"] == pytest.approx(0, abs=1e-4)
    assert report["steps"][0]["gap"] == pytest.approx(0, abs=1e-4)
    told = report["data"]["conversations"]
    assert (told["rollouts"], told["segments"], told["segments_per_rollout"]) == (32, 48, 1.5)
    assert told["breaks"] == {"rewritten": 16}
    assert told["sampled_tokens"] == told["trained_tokens"] + told["without_advantage_tokens"]
    assert told["trained_tokens"] > 32
