"""Which logged tasks a candidate may be asked: those the primary answered, which no training of it saw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from ratchet.adapters.evaluations import input_sha256
from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.taught_logs import is_kept, words_key
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm
from schemas.records.adapter_card import TAUGHT_DIGITS, DataRange, DataWindow
from services.orchestrator.promotion.unseen_prompts import (
    LEAST_OF_TYPE,
    Lessons,
    LoggedPrompt,
    UnseenPrompts,
    lessons_of,
    unseen_prompts,
)
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.trainer.making_logs import group, line, write_log

NO_LESSONS = Lessons()


def task(number: int, *scores: float | None, **changed: Any) -> list[bytes]:
    asked = {"input": f"sort: {number}", "arm": Arm(sequence=number)}
    return group(f"t-{number}", scores or (0.5, 0.6), **(asked | changed))


def unseen(logs_dir: Path, lines: list[list[bytes]], lessons: Lessons = NO_LESSONS) -> UnseenPrompts:
    write_log(logs_dir, [line for some in lines for line in some])
    return unseen_prompts(logs_dir, "small", "v1.0.0", lessons, Random(1))


def names(logs_dir: Path, lines: list[list[bytes]], lessons: Lessons = NO_LESSONS) -> list[str]:
    return sorted(one.task_id for one in unseen(logs_dir, lines, lessons).found)


def size(lines: list[list[bytes]]) -> int:
    return sum(len(line) for some in lines for line in some)


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
    before = [task(0), task(1, input="Sort 1, please!")]
    after = [task(2), task(3, input="please:  sort  1"), task(4)]

    found = unseen(tmp_path, [*before, *after], Lessons(reads=((size(before), 0.0),)))

    assert sorted(one.task_id for one in found.found) == ["t-2", "t-4"]
    assert found.taught == 1


def test_prompts_that_trainings_left_out_are_asked_each_once(tmp_path: Path) -> None:
    lines = [task(number, input=f"sort: {number % 40}") for number in range(80)]
    kept = {number for number in range(40) if is_kept(words_key(f"sort: {number}"), 0.2)}
    assert 0 < len(kept) < 20

    found = unseen(tmp_path, lines, Lessons(reads=((size(lines), 0.2),)))

    assert sorted(one.sequence % 40 for one in found.found) == sorted(kept)
    assert found.taught == 0
    assert names(tmp_path, lines, Lessons.of([(size(lines), 0.2), (size(lines), 0.0)], [])) == []


def test_what_cards_name_as_taught_is_left_out_and_counted(tmp_path: Path) -> None:
    lessons = Lessons(inputs=frozenset([input_sha256("sort: 1")[:TAUGHT_DIGITS]]))

    found = unseen(tmp_path, [task(1), task(2)], lessons)

    assert ([one.task_id for one in found.found], found.taught) == (["t-2"], 1)


def test_a_session_is_asked_one_of_its_tasks(tmp_path: Path) -> None:
    found = names(tmp_path, [*(task(number, session_id="ada") for number in range(5)), task(5, session_id="bob")])

    assert len(found) == 2 and "t-5" in found


def test_what_judged_an_earlier_candidate_is_drawn_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    own = Arm(sequence=9, experiment_id="validation:small-v1.0.1-3")
    write_log(tmp_path, [*task(0), *task(1), *group("replay/small/v1.0.1-3/v1.0.1/0.5/0", (0.1, 0.2), arm=own)])
    found = unseen_prompts(tmp_path, "small", "v1.0.0", Lessons(), Random(1))

    drawn, again = found.draw(10, Random(1))
    assert ([one.task_id for one in drawn], again) == (["t-1"], 0)

    found.judged.add(1)
    drawn, again = found.draw(10, Random(1))
    assert (sorted(one.task_id for one in drawn), again) == (["t-0", "t-1"], 2)


def test_a_rare_type_gets_prompts_that_speak_for_it_alone() -> None:
    found = [LoggedPrompt(f"t-{number}", number, "rare" if number % 40 == 0 else "usual") for number in range(800)]

    drawn, _ = UnseenPrompts(found).draw(100, Random(1))

    rare = Counter(one.extra for one in drawn if one.task_type == "rare")
    assert len(drawn) == 100 and rare.total() >= LEAST_OF_TYPE
    assert {one.task_type for one in drawn if one.extra} == {"rare"}
    assert UnseenPrompts.types_of(drawn) == ("rare", "usual")


def test_cards_say_what_was_read_and_an_ancestor_whose_folder_is_gone_may_have_read_what_was_kept(
    tmp_path: Path,
) -> None:
    def trained(end: int, parent: str, seed: int) -> str:
        ranges = (DataRange(log="agent_interactions", start=end - 50, end=end, sha256="0" * 64),)
        data = DataWindow(ranges=ranges, taught=(f"{seed:016}",))
        folder = published(tmp_path, seed=seed, parent=parent, data=data, hyperparameters={"replay_share": 0.1})
        decided(RegistryStore(tmp_path), registration(folder, tmp_path))
        return folder.name

    first = trained(100, "v1.0.0", 1)
    second = trained(300, first, 2)
    adapters = RegistryStore(tmp_path).read().agent("small")
    of_first = lessons_of(tmp_path, "small", adapters, first)
    of_second = lessons_of(tmp_path, "small", adapters, second)

    assert (of_first.reads, of_second.reads) == (((100, 0.1),), ((300, 0.1),))
    assert of_second.inputs == {f"{1:016}", f"{2:016}"}
    assert lessons_of(tmp_path, "small", adapters, "v1.0.0") == Lessons()
    (tmp_path / "small" / first).rename(tmp_path / "gone")
    assert lessons_of(tmp_path, "small", adapters, second).reads == ((300, 0.0),)
    primary = adapters.model_copy(update={"primary": first})
    assert lessons_of(tmp_path, "small", primary, second).reads == ((300, 0.1),)
