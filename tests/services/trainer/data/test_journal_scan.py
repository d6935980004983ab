"""A window of the log becomes groups, and every line of it is accounted for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.adapters.evaluations import input_sha256
from ratchet.adapters.taught_logs import is_kept, words_key
from ratchet.logs.trajectories import TrajectoryFolder, path_of, sum_in, taken_out
from ratchet.service.errors import JournalError
from schemas.messages.response import Edited, Segment
from schemas.messages.reward import NOT_MENTIONED, ScorerIdentity
from schemas.messages.work import Arm, RoleVersion, Sampling
from schemas.records.cascade import BigAnswer, Routing
from schemas.records.interaction import Interaction
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.data.demonstrations import load_demonstrations
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.samples import load_samples, rollouts_of
from services.trainer.data.selection import Selection, select
from tests.quick import rounds
from tests.services.trainer.making_logs import AT, group, line, write_log

POLICY = DataPolicy(agent_id="small", versions={"v1.0.0": None})
GOOD = group("good", (0.0, 1.0))
EDITED = Edited(prompt_ids=(7, 8), text="by a person")


def routed(*, teaches: bool, response: str = "by the big model") -> dict[str, Any]:
    big = BigAnswer(
        task_id="cascade/t", agent_id="big", adapter_version="v1.0.0", response=response, score=1.0, teaches=teaches
    )
    routing = Routing(order=0, score=0.5, to="big", is_unit=False, is_audited=False, served="big", big=big)
    return {"cascade": routing}


def test_the_answer_of_a_big_model_is_a_demonstration_where_it_scored_no_less(tmp_path: Path) -> None:
    lines = [
        line("better", 0, input="a", **routed(teaches=True)),
        line("better", 1, input="a"),
        *group("worse", (1.0, 0.0), input="b", **routed(teaches=False)),
        *group("referenced", (1.0, 0.0), input="c", reference="c", reference_score=1.0, **routed(teaches=True)),
        line("no reference of it", 0, input="d", reference_score=0.2, **routed(teaches=True)),
        line("no reference of it", 1, input="d", reference_score=0.2),
    ]
    policy = replace(POLICY, sources=frozenset({"reference", "big_model"}))
    found = JournalScan(write_log(tmp_path, lines), policy).read(0, None).demonstrations

    assert [(place.source, place.text) for place in found.places] == [
        ("big_model", "by the big model"),
        ("reference", None),
        ("big_model", "by the big model"),
    ]
    assert JournalScan(tmp_path, POLICY).read(0, None).demonstrations.places == []


def test_what_another_base_model_was_asked_is_no_demonstration_whose_tokens_are_others(tmp_path: Path) -> None:
    shown = {"reference": "r", "reference_score": 1.0}
    lines = [line(name, 0, input=name, engine=f"transformers model@{name}", **shown) for name in ("old", "new")]
    lines.append(line("older", 0, input="older", engine="transformers model@old", program="it", edited=EDITED))
    policy = replace(POLICY, sources=frozenset({"reference", "approval"}), base_revision="new4567")
    found = JournalScan(write_log(tmp_path, lines), policy).read(0, None).demonstrations

    assert [place.position for place in found.places] == [len(lines[0])]


def test_what_a_person_had_a_programs_result_be_is_a_demonstration_of_the_models_own_prompt(tmp_path: Path) -> None:
    rollout = {"program": "it", "input": "a", "reference": "a", "reference_score": 1.0}
    lines = [
        line("edited", 0, **rollout, edited=EDITED),
        line("edited", 1, **rollout),
        *group("later", (1.0, 0.0), input="a", reference="a", reference_score=1.0),
    ]
    logs = write_log(tmp_path, lines)
    policy = replace(POLICY, sources=frozenset({"reference", "approval"}))

    found = JournalScan(logs, policy).read(0, None).demonstrations
    taught = load_demonstrations(logs, found, lambda text: [len(text)], (), longest=99).taught

    assert [(list(one.prompt), list(one.completion), one.source) for one in taught] == [([7, 8], [11], "approval")]
    roles = {"writer": RoleVersion(agent_id="small"), "mender": RoleVersion(agent_id="critic")}
    team = {"input": "b", "arm": Arm(sequence=1, roles=roles)}
    write_log(logs, [line("team", 0, **rollout | team, edited=EDITED)])
    assert len(JournalScan(logs, policy).read(0, None).demonstrations.places) == 2
    partners = replace(policy, agent_id="critic")  # whose prompt it is not, nor the tokens of its model
    assert JournalScan(logs, partners).read(0, None).demonstrations.places == []
    others = replace(POLICY, sources=frozenset({"reference"}))
    assert [one.source for one in JournalScan(logs, others).read(0, None).demonstrations.places] == ["reference"]


def selected(logs: Path, policy: DataPolicy = POLICY, since: int = 0, until: int | None = None) -> Selection:
    return select(JournalScan(logs, policy).read(since, until), policy)


def scored_by(revision: str) -> dict[str, Any]:
    return {"scorer": ScorerIdentity(id="judge", revision=revision)}


@pytest.mark.parametrize(
    ("lines", "left_out"),
    [
        ([], {}),
        ([b"{not json}\n"], {"lines.bad_line": 1}),
        ([b"\n", b"[1]\n", b'{"task_id": 3}\n'], {"lines.bad_line": 3}),
        (group("x", (0.0, 1.0), agent_id="coder"), {"lines.other_agent": 2}),
        (
            group("x", (0.0, 1.0), arm=Arm(sequence=1, experiment_id="validation:small-3")),
            {"lines.validation": 2},
        ),
        (
            [line("x", None, score=None, response=None, status="expired", reason="late", group_size=0)],
            {"lines.no_sample": 1},
        ),
        (GOOD, {"samples.duplicate": 2}),
        (group("x", (0.0, None, 1.0)), {"samples.null_score": 1}),
        (group("x", (None, None)), {"groups.too_few_samples": 1, "samples.too_few_samples": 2}),
        (group("x", (0.0, 1.0), finish_reason="length"), {"groups.too_few_samples": 1, "samples.too_few_samples": 2}),
        (group("x", (0.0, 1.0), logprobs=None), {"groups.too_few_samples": 1, "samples.too_few_samples": 2}),
        (
            group("x", (0.0, 1.0), completion_ids=(), logprobs=()),
            {"groups.too_few_samples": 1, "samples.too_few_samples": 2},
        ),
        (group("x", (0.0, 1.0), group_size=3), {"groups.incomplete": 1, "samples.incomplete": 2}),
        (group("x", (0.0, 1.0), adapter_version="v1.0.9"), {"groups.other_version": 1, "samples.other_version": 2}),
        (
            group("x", (0.0, 1.0), sampling=Sampling(top_p=0.9)),
            {"groups.filtered_sampling": 1, "samples.filtered_sampling": 2},
        ),
        (group("x", (0.5, 0.5)), {"groups.zero_spread": 1, "samples.zero_spread": 2}),
        (
            group("x", (0.0, 1.0), sampling=Sampling(temperature=0.7)),
            {"groups.other_temperature": 1, "samples.other_temperature": 2},
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_what_is_left_out_is_counted(tmp_path: Path, lines: list[bytes], left_out: dict[str, int]) -> None:
    logs = write_log(tmp_path, GOOD + lines)

    found = selected(logs)

    assert {name: count for name, count in found.counts.items() if "." in name} == left_out
    assert found.counts["lines"] == 2 + len(lines)


def test_unscorable_answers_of_scored_tasks_are_learned_from_and_counted(tmp_path: Path) -> None:
    def scored(task: str, *statuses: str) -> list[bytes]:
        return [
            line(task, index, score=0.9 if status == "ok" else None, score_status=status, group_size=len(statuses))
            for index, status in enumerate(statuses)
        ]

    lines = scored("a", "ok", "ok", "unscorable") + scored("b", "unscorable", "unscorable")
    lines += scored("c", "ok", "ok", "infra_fail") + scored("d", "ok", "unscorable", "timeout")

    found = selected(write_log(tmp_path, lines))

    assert [list(kept.scores) for kept in found.groups] == [[0.9, 0.9, 0.0], [0.9, 0.0]]
    assert found.counts == {
        **{"lines": 11, "groups": 2, "samples": 5, "unscorable": 2},
        **{"groups.too_few_samples": 1, "samples.too_few_samples": 2},
        **{"groups.zero_spread": 1, "samples.zero_spread": 3, "samples.null_score": 1},
    }


def test_answers_that_a_reward_says_nothing_of_are_not_held_to_be_bad(tmp_path: Path) -> None:
    """A draft-shaped Reward has one score, the first answer's."""
    unmentioned = {"score": None, "score_status": "unscorable", "score_reason": NOT_MENTIONED}
    lines = [line("a", 0, score=0.9), line("a", 1, **unmentioned)]

    found = selected(write_log(tmp_path, lines))

    assert found.counts["groups.too_few_samples"] == 1


def test_groups_by_too_different_a_policy_are_left_out_later_and_counted(tmp_path: Path) -> None:
    lines = group("a", (0.0, 1.0)) + group("b", (0.0, 0.5, 1.0), adapter_version="v1.0.1") + group("c", (0.5, 0.5))
    policy = DataPolicy(agent_id="small", versions={"v1.0.0": None, "v1.0.1": None})
    found = selected(write_log(tmp_path, lines), policy)

    left = found.without({"v1.0.1"})

    assert [kept.version for kept in left.groups] == ["v1.0.0"]
    assert left.counts == {
        **{"lines": 7, "groups": 1, "samples": 2},
        **{"groups.zero_spread": 1, "samples.zero_spread": 2},
        **{"groups.too_different": 1, "samples.too_different": 3},
    }
    assert found.without({"v1.0.9"}) is found


def test_only_the_newest_scorer_counts(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("a", (0.0, 1.0), **scored_by("1")) + group("b", (0.0, 1.0), **scored_by("2")))

    found = selected(logs)

    assert found.scorer is not None and found.scorer.revision == "2"
    assert found.counts["groups.other_scorer"] == 1
    assert found.counts["groups"] == 1


def test_groups_that_spread_less_than_the_scorers_noise_teach_nothing(tmp_path: Path) -> None:
    same_answer = group("noisy", (0.2, 0.6), response="the same")
    logs = write_log(tmp_path, same_answer + group("narrow", (0.4, 0.5)) + group("wide", (0.0, 1.0)))

    found = selected(logs)

    assert found.noise == pytest.approx(0.4 / 2**0.5)
    assert found.counts["groups.below_noise"] == 2
    assert found.counts["groups"] == 1


def test_old_groups_and_too_many_are_left_out_the_oldest_first(tmp_path: Path) -> None:
    hours = [group(f"t{hour}", (0.0, 1.0), timestamp=AT + timedelta(hours=hour)) for hour in range(6)]
    logs = write_log(tmp_path, [one for lines in hours for one in lines])

    found = selected(logs, DataPolicy(agent_id="small", versions={"v1.0.0": None}, max_age_s=4 * 3600, max_groups=3))

    assert (found.counts["groups.too_old"], found.counts["groups.over_limit"]) == (1, 2)
    assert [kept.at - AT for kept in found.groups] == [timedelta(hours=hour) for hour in (3, 4, 5)]


def test_the_window_is_the_one_asked_for_and_its_sum_that_of_the_bytes(tmp_path: Path) -> None:
    first, second, third = (b"".join(group(name, (0.0, 1.0))) for name in ("a", "b", "c"))
    logs = write_log(tmp_path, [first, second, third])
    start, end = len(first), len(first) + len(second)

    found = selected(logs, since=start, until=end)

    (read,) = found.ranges
    assert (read.start, read.end) == (start, end)
    assert read.sha256 == hashlib.sha256(second).hexdigest()
    assert found.counts == {"lines": 2, "groups": 1, "samples": 2}


def test_a_group_whose_lines_lie_apart_and_out_of_order_is_whole(tmp_path: Path) -> None:
    (a0, a1), (b0, b1) = group("a", (0.1, 0.9)), group("b", (0.3, 0.7))
    logs = write_log(tmp_path, [a1, b0, a0, b1])

    found = selected(logs)

    assert [list(kept.scores) for kept in found.groups] == [[0.1, 0.9], [0.3, 0.7]]


def test_a_window_that_starts_inside_a_line_is_an_error(tmp_path: Path) -> None:
    logs = write_log(tmp_path, GOOD)

    with pytest.raises(JournalError, match="no line starts at byte 5"):
        selected(logs, since=5)


def test_samples_come_back_with_the_tokens_that_were_logged(tmp_path: Path) -> None:
    lines = [
        line("a", index, group_size=2, score=score, response=str(index), completion_ids=ids, logprobs=logprobs)
        for index, (score, ids, logprobs) in enumerate([(0.0, (7,), (-0.5,)), (1.0, (8, 9), (-1.0, -2.0))])
    ]
    logs = write_log(tmp_path, GOOD + lines)

    shares: list[float] = []
    samples = load_samples(logs, selected(logs).groups, on_share=shares.append)[2:]

    assert [(s.group, s.score, list(s.completion), list(s.logprobs)) for s in samples] == [
        (1, 0.0, [7], [-0.5]),
        (1, 1.0, [8, 9], [-1.0, -2.0]),
    ]
    assert samples[0].prompt is samples[1].prompt
    assert shares == [0.25, 0.5, 0.75, 1.0]


NO_TOKENS = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs"))
TALK = (
    Segment(prompt_ids=(1, 2), completion_ids=(3, 4, 5, 6), spans=((0, 1), (3, 4)), logprobs=(-0.5, -0.25)),
    Segment(prompt_ids=(1, 9), completion_ids=(7,), spans=((0, 1),), logprobs=(-2.0,), broke="rewritten"),
)


def talks(**changed: Any) -> list[bytes]:
    return group("talk", (0.0, 1.0), **({"segments": TALK} | NO_TOKENS | changed))


def test_a_conversation_is_a_row_for_each_segment_with_a_mask_of_what_was_sampled(tmp_path: Path) -> None:
    logs = write_log(tmp_path, GOOD + talks())

    samples = load_samples(logs, selected(logs).groups)

    assert rollouts_of(samples) == [(0,), (1,), (2, 3), (4, 5)]
    assert [sample.sampled for sample in samples[:2]] == [None, None]
    first, second = samples[2:4]
    assert (list(first.prompt), list(first.completion), first.tokens) == ([1, 2], [3, 4, 5, 6], 2)
    assert (list(first.sampled or ()), list(first.logprobs)) == ([1, 0, 0, 1], [-0.5, 0.0, 0.0, -0.25])
    assert (list(second.prompt), second.broke, second.score) == ([1, 9], "rewritten", 0.0)
    assert first.prompt is samples[4].prompt


def test_whoever_does_not_know_segments_leaves_conversations_out_with_a_reason(tmp_path: Path) -> None:
    """An older trainer reads them so; answers in the same group stay."""
    answer = line("talk", 0, group_size=3, response="a", score=1.0), line("talk", 1, group_size=3, score=0.0)
    talk = line("talk", 2, group_size=3, **NO_TOKENS, response="c")

    found = selected(write_log(tmp_path, [*answer, talk]))

    assert (found.samples, found.counts["samples.no_tokens"]) == (2, 1)


def long_talks(logs: Path, samples: int = 3) -> list[bytes]:
    """A group whose conversations lie in files of their own, which are there."""
    count = 12_000
    segment = Segment(
        prompt_ids=(1,), completion_ids=(7,) * count, spans=((0, count),), logprobs=(-0.5,) * count, broke=None
    )
    found = []
    for number in range(samples):
        whole = line("long", number, group_size=samples, score=number / 2, response=str(number), segments=(segment,))
        row, content = taken_out(Interaction.decode(whole).model_copy(update=NO_TOKENS))
        assert content is not None and row.trajectory is not None
        TrajectoryFolder(logs).write({row.trajectory.sha256: content}, 0)
        found.append(row.encode() + b"\n")
    return found


def test_conversations_that_are_logged_apart_are_read_through_their_lines(tmp_path: Path) -> None:
    logs = write_log(tmp_path, [*talks(), *long_talks(tmp_path)])

    samples = load_samples(logs, selected(logs).groups)

    assert [(sample.score, sample.tokens) for sample in samples[-3:]] == [(0.0, 12_000), (0.5, 12_000), (1.0, 12_000)]
    assert rollouts_of(samples)[-3:] == [(4,), (5,), (6,)]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(Path.unlink, "no_trajectory"), (lambda path: path.write_bytes(b"not zstd"), "bad_trajectory")],
    ids=["missing", "damaged"],
)
def test_a_conversation_whose_file_is_gone_is_dropped_with_a_reason_and_its_group_goes_on(
    tmp_path: Path, harm: Callable[[Path], object], reason: str
) -> None:
    lines = long_talks(tmp_path)
    logs = write_log(tmp_path, lines)
    harm(path_of(tmp_path, str(sum_in(lines[2]))))

    found = selected(logs)

    assert (found.samples, found.counts[f"samples.{reason}"]) == (2, 1)
    assert [sample.score for sample in load_samples(logs, found.groups)] == [0.0, 0.5]


def test_a_group_left_with_too_few_conversations_is_left_out(tmp_path: Path) -> None:
    lines = long_talks(tmp_path, samples=2)
    path_of(tmp_path, str(sum_in(lines[0]))).unlink()

    found = selected(write_log(tmp_path, lines))

    assert (found.samples, found.counts["groups.too_few_samples"]) == (0, 1)


def test_an_older_trainer_drops_a_conversation_that_is_logged_apart_with_a_reason(tmp_path: Path) -> None:
    """It knows neither `segments` nor `trajectory`: to it the line is this."""
    known = [{**json.loads(one), "trajectory": None} for one in long_talks(tmp_path)]
    logs = write_log(tmp_path, [json.dumps(one).encode() + b"\n" for one in known])

    assert selected(logs).counts["groups.too_few_samples"] == 1


def test_a_rollout_that_we_lost_is_left_out_of_its_group_and_of_its_mean(tmp_path: Path) -> None:
    lost = line("talk", 2, group_size=3, segments=TALK, **NO_TOKENS, score=0.0, sample_status="lost", response="c")
    others = [
        line("talk", index, group_size=3, segments=TALK, **NO_TOKENS, score=score, response=str(index))
        for index, score in enumerate((1.0, 0.5))
    ]

    found = selected(write_log(tmp_path, [*others, lost]))

    assert [list(kept.scores) for kept in found.groups] == [[1.0, 0.5]]
    assert found.counts["samples.lost"] == 1


def test_a_task_of_a_tenant_that_its_agent_does_not_learn_from_teaches_nothing(tmp_path: Path) -> None:
    apart = group("tenant:acme/t", (0.0, 1.0), kept_apart=True, reference_score=1.0)

    found = selected(write_log(tmp_path, [*GOOD, *apart]), replace(POLICY, sources=frozenset(["reference"])))

    assert found.counts["lines.other_tenant"] == 2
    assert not found.demonstrations.taught


def test_a_research_agents_version_learns_from_its_tasks_of_its_tenant_alone(tmp_path: Path) -> None:
    # given groups of the agent, of it in another tenant, of another agent, of an evaluation of it, and of users
    of_lab = {"registered_agent": "lab", "kept_apart": "research"}
    lines = [
        *group("tenant:acme/mine", (0.0, 1.0), **of_lab),
        *group("tenant:globex/t", (0.0, 1.0), **of_lab),
        *group("tenant:acme/other", (0.0, 1.0), **of_lab | {"registered_agent": "other"}),
        *group("tenant:acme/measured", (0.0, 1.0), **of_lab | {"kept_apart": True}),
        *GOOD,
    ]
    logs = write_log(tmp_path, lines)

    # then each policy keeps the one group that is its own, and counts the others
    for research, first, reason in (
        (("lab", "acme"), 0, "not_research"),
        (("lab", "globex"), 2, "not_research"),
        (None, 8, "other_tenant"),
    ):
        found = selected(logs, replace(POLICY, research=research))
        assert [one.positions[0] for one in found.groups] == [sum(map(len, lines[:first]))]
        assert found.counts[f"lines.{reason}"] == 8


def test_a_task_that_was_cancelled_teaches_nothing_its_reference_neither(tmp_path: Path) -> None:
    late = [
        line(
            "late", index, group_size=2, status="cancelled", sample_status="cancelled", score=None, reference_score=1.0
        )
        for index in range(2)
    ]

    found = selected(write_log(tmp_path, [*GOOD, *late]), replace(POLICY, sources=frozenset(["reference"])))

    assert found.counts["lines.cancelled"] == 2
    assert not found.demonstrations.taught


def test_a_group_that_ends_with_the_first_that_passes_teaches_nothing_whether_it_was_cut_or_not(tmp_path: Path) -> None:
    whole = [
        line(task, index, group_size=2, segments=TALK, **NO_TOKENS, score=score, response=str(index), **given)
        for task, given in (("first", {"select": "first-passing"}), ("best", {"select": "best"}))
        for index, score in enumerate((1.0, 0.5))
    ]
    cut = [
        line("cut", 0, segments=TALK, **NO_TOKENS, group_size=2, score=1.0, select="first-passing"),
        line("cut", 1, **NO_TOKENS, group_size=2, score=None, sample_status="cancelled", select="first-passing"),
    ]

    found = selected(write_log(tmp_path, [*whole, *cut]))

    assert [list(kept.scores) for kept in found.groups] == [[1.0, 0.5]]
    assert found.counts["lines.first_passing"] == 4


@pytest.mark.parametrize(
    "wrong", [{"spans": ((0, 9),)}, {"logprobs": (-0.5,)}, {"logprobs": (-0.5, -0.25, -0.1)}], ids=str
)
def test_a_segment_that_does_not_align_is_an_error_of_the_log(tmp_path: Path, wrong: dict[str, Any]) -> None:
    rows = [json.loads(one) for one in talks()]
    for row in rows:
        row["segments"][0] |= wrong
    logs = write_log(tmp_path, [json.dumps(row).encode() + b"\n" for row in rows])

    with pytest.raises(JournalError, match="segment"):
        load_samples(logs, selected(logs).groups)


SHAPE = st.tuples(
    st.lists(st.one_of(st.none(), st.sampled_from((0.0, 0.5, 1.0))), min_size=1, max_size=5),
    st.sampled_from(("small", "coder")),
    st.sampled_from(("v1.0.0", "v1.0.1")),
    st.integers(0, 2),
    st.sampled_from(("stop", "length")),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=rounds(60))
@given(st.lists(SHAPE, max_size=12), st.randoms(use_true_random=False))
def test_every_line_is_used_or_left_out_for_exactly_one_reason(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[Any], rng: Any
) -> None:
    lines = [
        one
        for number, (scores, agent, version, missing, finish) in enumerate(shapes)
        for one in group(
            f"t{number % 9}",
            scores,
            agent_id=agent,
            adapter_version=version,
            group_size=len(scores) + missing,
            finish_reason=finish,
        )
    ]
    lines += [b"torn\n"] * rng.randrange(3)
    rng.shuffle(lines)
    logs = write_log(tmp_path_factory.mktemp("logs"), lines)

    found = selected(logs)

    left_out = sum(n for name, n in found.counts.items() if name.startswith(("lines.", "samples.")))
    assert found.samples + left_out == found.lines == len(lines)
    positions = [position for kept in found.groups for position in kept.positions]
    assert len(set(positions)) == len(positions)


def test_what_an_evaluation_asks_teaches_nothing_whoever_asked_it(tmp_path: Path) -> None:
    lines = [*group("kept", (0.0, 1.0), input="sort:  dc"), *group("taught", (0.0, 1.0), input="sort: ba")]
    logs = write_log(tmp_path, lines)

    found = selected(logs, replace(POLICY, held_out=frozenset([input_sha256("sort: dc")])))

    assert found.counts == {"lines": 4, "groups": 1, "samples": 2, "lines.evaluation": 2}


def test_prompts_that_are_kept_for_the_replay_teach_nothing_in_whatever_order_their_words_are(tmp_path: Path) -> None:
    kept = next(f"sort {number}" for number in range(100) if is_kept(words_key(f"sort {number}"), 0.1))
    read = next(f"sort {number}" for number in range(100) if not is_kept(words_key(f"sort {number}"), 0.1))
    shown = " ".join(reversed(kept.split())).upper() + "!"
    lines = [*group("kept", (0.0, 1.0), input=shown, reference_score=1.0), *group("read", (0.0, 1.0), input=read)]
    logs = write_log(tmp_path, lines)

    found = selected(logs, replace(POLICY, replay_share=0.1, sources=frozenset(["reference"])))

    assert found.counts == {"lines": 4, "groups": 1, "samples": 2, "lines.replay": 2}
    assert not found.demonstrations.taught


def by_programs(task_id: str, *made: tuple[str | None, float]) -> list[bytes]:
    return [
        line(task_id, number, score=score, program=program, response=str(number), group_size=len(made))
        for number, (program, score) in enumerate(made)
    ]


def test_rollouts_are_compared_within_their_program_where_asked(tmp_path: Path) -> None:
    lines = by_programs("a", ("aider", 0.9), ("shell", 0.1), ("aider", 0.7), ("shell", 0.3))
    lines += by_programs("b", ("aider", 0.9), ("shell", 0.1), ("aider", 0.8))
    lines += by_programs("c", ("aider", 0.9), ("shell", 0.1), ("aider", 0.9), ("shell", 0.1))
    lines += by_programs("d", ("shell", 0.4), ("shell", 0.6)) + by_programs("e", ("aider", 1.0), ("shell", 0.0))
    logs = write_log(tmp_path, lines)

    apart, together = selected(logs, replace(POLICY, baseline="program")), selected(logs)

    assert [list(kept.scores) for kept in apart.groups] == [[0.9, 0.1, 0.7, 0.3], [0.9, 0.8], [0.4, 0.6]]
    assert {name: count for name, count in apart.counts.items() if "." in name} == {
        **{"groups.zero_spread": 1, "samples.zero_spread": 4, "samples.alone": 1},
        **{"groups.too_few_samples": 1, "samples.too_few_samples": 2},
    }
    assert together.counts["groups"] == 5
    inputs = TrainerInputs(None, None, load_samples(logs, apart.groups), tmp_path, 0, 1.0, 1e-4, on_gpu=False)
    assert inputs.peers("program") == [[[0, 2], [1, 3]], [[0, 1]], [[0, 1]]]
    assert inputs.peers("group") == [[[0, 1, 2, 3]], [[0, 1]], [[0, 1]]]


def test_programs_whose_own_scores_spread_less_than_the_noise_teach_nothing(tmp_path: Path) -> None:
    logs = write_log(tmp_path, by_programs("a", ("aider", 0.9), ("shell", 0.1), ("aider", 0.91), ("shell", 0.11)))
    policy = replace(POLICY, score_noise=0.05)

    assert selected(logs, replace(policy, baseline="program")).counts["groups.below_noise"] == 1
    assert selected(logs, policy).counts["groups"] == 1
