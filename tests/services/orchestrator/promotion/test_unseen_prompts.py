"""Which logged tasks a candidate may be asked: those the primary answered, which no training of it saw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm
from schemas.records.adapter_card import DataRange, DataWindow
from services.orchestrator.promotion.unseen_prompts import (
    LEAST_OF_TYPE,
    LoggedPrompt,
    UnseenPrompts,
    taught_up_to,
    unseen_prompts,
)
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.trainer.making_logs import group, line, write_log


def task(number: int, *scores: float | None, **changed: Any) -> list[bytes]:
    asked = {"input": f"sort: {number}", "arm": Arm(sequence=number)}
    return group(f"t-{number}", scores or (0.5, 0.6), **(asked | changed))


def names(logs_dir: Path, lines: list[list[bytes]], *, taught: int = 0) -> list[str]:
    write_log(logs_dir, [line for some in lines for line in some])
    return sorted(one.task_id for one in unseen_prompts(logs_dir, "small", "v1.0.0", taught, Random(1)).found)


def test_what_the_primary_answered_and_the_scorer_scored_is_asked(tmp_path: Path) -> None:
    other = ScorerIdentity(id="verifier:exact", revision="1")
    lines = [
        task(0, scorer=other),
        task(1),
        task(2, agent_id="large"),
        task(3, adapter_version="v1.0.1"),
        task(4, None, None),
        [line("t-5", None, response=None, score=None, status="failed", group_size=0, arm=Arm(sequence=5))],
        task(6, program="aider"),
        task(7, select="first-passing"),
        task(8, arm=Arm(sequence=8, experiment_id="validation:small-anchors-1")),
        task(9)[:1],
        task(10, None, 0.4),
    ]

    assert names(tmp_path, lines) == ["t-1", "t-10"]


def test_what_a_training_read_is_left_out_and_so_is_what_is_asked_in_the_same_words_later(tmp_path: Path) -> None:
    before = [task(0), task(1)]
    taught = sum(len(line) for some in before for line in some)
    after = [task(2), task(3, input="sort:  1"), task(4)]

    assert names(tmp_path, [*before, *after], taught=taught) == ["t-2", "t-4"]


def test_a_session_is_asked_one_of_its_tasks(tmp_path: Path) -> None:
    found = names(tmp_path, [*(task(number, session_id="ada") for number in range(5)), task(5, session_id="bob")])

    assert len(found) == 2 and "t-5" in found


def test_what_judged_an_earlier_candidate_is_drawn_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    own = Arm(sequence=9, experiment_id="validation:small-v1.0.1-3")
    write_log(tmp_path, [*task(0), *task(1), *group("replay/small/v1.0.1-3/v1.0.1/0.5/0", (0.1, 0.2), arm=own)])
    unseen = unseen_prompts(tmp_path, "small", "v1.0.0", 0, Random(1))

    drawn, again = unseen.draw(10, Random(1))
    assert ([one.task_id for one in drawn], again) == (["t-1"], 0)

    unseen.judged.add(1)
    drawn, again = unseen.draw(10, Random(1))
    assert (sorted(one.task_id for one in drawn), again) == (["t-0", "t-1"], 2)


def test_a_rare_type_gets_prompts_that_speak_for_it_alone() -> None:
    found = [LoggedPrompt(f"t-{number}", number, "rare" if number % 40 == 0 else "usual") for number in range(800)]

    drawn, _ = UnseenPrompts(found).draw(100, Random(1))

    rare = Counter(one.extra for one in drawn if one.task_type == "rare")
    assert len(drawn) == 100 and rare.total() >= LEAST_OF_TYPE
    assert {one.task_type for one in drawn if one.extra} == {"rare"}
    assert UnseenPrompts.types_of(drawn) == ("rare", "usual")


def test_a_card_says_where_the_log_is_new_and_an_ancestor_whose_folder_is_gone_read_what_came_before(
    tmp_path: Path,
) -> None:
    def trained(end: int, parent: str, seed: int) -> str:
        data = DataWindow(ranges=(DataRange(log="agent_interactions", start=end - 50, end=end, sha256="0" * 64),))
        folder = published(tmp_path, seed=seed, parent=parent, data=data)
        decided(RegistryStore(tmp_path), registration(folder, tmp_path))
        return folder.name

    first = trained(100, "v1.0.0", 1)
    second = trained(300, first, 2)
    adapters = RegistryStore(tmp_path).read().agent("small")

    assert taught_up_to(tmp_path, "small", adapters, first) == 100
    assert taught_up_to(tmp_path, "small", adapters, second) == 300
    (tmp_path / "small" / first).rename(tmp_path / "gone")
    assert taught_up_to(tmp_path, "small", adapters, second) == 300
    assert taught_up_to(tmp_path, "small", adapters, "v1.0.0") == 0
