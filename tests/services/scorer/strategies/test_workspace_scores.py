"""What answers leave in a workspace, scored by its hidden cases, its style, its holes and what it takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore
from schemas.messages.workspace import Artifact, GitSource, Workspace
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.efficiency import Taken, verdict
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.source_quality import SECURITY, STYLE
from services.scorer.strategies.strategy import Answer, ScoringRequest, Strategy
from tests.services.cli.verify.workspace_tasks import PLACES, WRONG, patch, task

QUALITY = "tests and 0.5*style + 0.25*security + 0.25*efficiency"
UGLY = patch("python").replace("+    return price * count\n", "+    l = eval('price * count'); return l\n")
SLOW = patch("python").replace(
    "+    return price * count\n", "+    for _ in range(3000000): pass\n     return price * count\n"
)
SLOW = SLOW.replace("\n     return", "\n+    return").replace("@@ -1,2 +1,2 @@", "@@ -1,2 +1,3 @@")


@pytest.fixture
async def scorer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Strategy]:
    settings = ScorerSettings.read(scorer=getattr(request, "param", "tests"), workspace_cache=tmp_path / "cache")
    strategy = build_strategy(settings)
    await strategy.start()
    yield strategy
    await strategy.stop()


def request_of(*answers: Answer, **more: Any) -> ScoringRequest:
    given = {**task("python", with_suite=False), **more}
    workspace = given["workspace"]
    return ScoringRequest(
        "t",
        "mend it",
        answers,
        reference=given["reference"],
        criteria=given["criteria"],
        workspace=workspace if isinstance(workspace, Workspace) else Workspace.model_validate(workspace),
    )


def left(changed: str, **more: Any) -> Answer:
    return Answer("done", artifact=Artifact(patch=changed, **more))


async def test_an_artifact_a_patch_and_files_are_answers_and_words_are_none(scorer: Strategy) -> None:
    files = {"files": {PLACES["python"]: "def total(price, count):\n    return price * count\n"}}
    answers = [
        left(patch("python")),
        left(patch("python")),
        Answer(f"So:\n```diff\n{patch('python')}```\n"),
        Answer(json.dumps(files)),
        Answer("I mended it: all tests pass."),
        left(""),
    ]

    scores = await scorer.score(request_of(*answers))

    assert [one.score for one in scores] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]


CHANGE = "--- a/shop/price.py\n+++ b/shop/price.py\n"
SHORT = f"{CHANGE}@@ -2 +2 @@\n-    return price + count\n+    return price * count\n"


@pytest.mark.parametrize(
    "text",
    [
        f"I mended it:\n\n{patch('python')}\nAll tests pass.\n",
        f"So:\n```udiff\n{patch('python')}```\n",
        f"So:\n~~~\n{patch('python')}~~~\n",
        f"So:\n```diff\n{patch('python')}```\n".replace("\n", "\r\n"),
        f"```diff\n{SHORT}```",
    ],
)
async def test_a_patch_may_be_written_in_many_ways(scorer: Strategy, text: str) -> None:
    (one,) = await scorer.score(request_of(Answer(text)))

    assert (one.score, one.reason) == (1.0, "2 of 2 cases")


async def test_whose_fault_it_is_decides_between_nothing_and_null(scorer: Strategy) -> None:
    stale = left(patch("python"), tree_sha256="0" * 64)

    nonsense, other, out = await scorer.score(
        request_of(left("no patch"), stale, Answer('{"files": {"shop": "", "../x": ""}}'))
    )
    (refused,) = await scorer.score(
        request_of(left(""), workspace=Workspace(git=GitSource(url="https://example.org/x", commit="0" * 40)))
    )

    assert (nonsense.score, out.score) == (0.0, 0.0)
    assert (other.status, refused.status) == ("infra_fail", "unscorable")
    assert "another than the one" in (other.reason or "")
    assert "RATCHET_WORKSPACE_URLS" in (refused.reason or "")


async def test_what_is_restored_is_as_it_was_and_what_keeps_is_kept(scorer: Strategy) -> None:
    spoilt = {"files": {"main.py": "print(72)\n", PLACES["python"]: "def total(price, count): return 1 / 0\n"}}
    told = json.loads(task("python", with_suite=False)["criteria"])
    told["tests"]["restore"] = ["main.py"]
    told["tests"]["cases"][1]["keeps"] = True

    (one,) = await scorer.score(request_of(Answer(json.dumps(spoilt)), criteria=json.dumps(told)))

    assert one.score == 0.0
    assert (one.reason or "").startswith("what worked before does not: 0 of 2 cases")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scorer", [QUALITY], indirect=True)
async def test_the_parts_of_a_score_are_told_and_nothing_that_fails_its_cases_is_paid(scorer: Strategy) -> None:
    best, ugly, slow, nothing = await scorer.score(request_of(*map(left, (patch("python"), UGLY, SLOW, ""))))

    assert best.parts == {"tests": 1.0, "style": 1.0, "security": 1.0, "efficiency": pytest.approx(1.0, abs=0.2)}
    assert ugly.parts is not None
    assert (ugly.parts["security"], ugly.parts["style"]) == (0.5, pytest.approx(1 / 3, abs=0.2))
    assert slow.parts is not None
    assert slow.parts["efficiency"] < 0.8
    assert (nothing.score, nothing.parts) == (0.0, None)
    assert ugly.score is not None
    assert best.score is not None
    assert ugly.score < best.score
    assert (best.reason or "").startswith("tests 1; style 1; security 1; efficiency ")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scorer", ["0.5*style + 0.5*security"], indirect=True)
async def test_only_what_is_new_counts_and_no_comment_or_setting_of_the_answers_own(scorer: Strategy) -> None:
    old = {"old.py": "import os\nos.system(eval('1'))\nl = 1\n"}
    noqa = "# ruff: noqa\nl = eval('1')  # noqa\nO = 2  # nosec\n"

    same, hidden, broken, other = await scorer.score(
        request_of(
            Answer(json.dumps({"files": {"old.py": old["old.py"] + "x = 1\n"}})),
            Answer(json.dumps({"files": {"new.py": noqa, "ruff.toml": "exclude = ['*']\n", ".gitignore": "*\n"}})),
            Answer(json.dumps({"files": {"new.py": "def f(:\n"}})),
            Answer(json.dumps({"files": {"a.rb": "eval('1')\n"}})),
            workspace={"files": old},
        )
    )

    assert (same.score, other.score, other.status) == (1.0, None, "unscorable")
    assert "nothing was written that style has a tool for" in (other.reason or "")
    assert hidden.parts is not None
    assert hidden.parts["security"] < 1
    assert hidden.parts["style"] < 0.6
    assert broken.parts is not None
    assert broken.parts["style"] < 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scorer", ["0.5*style + 0.5*security"], indirect=True)
@pytest.mark.parametrize(
    ("name", "needs", "good", "bad"),
    [
        ("a.js", "node", "function f() {\n  return 1;\n}\n", "function f( {\n"),
        ("a.go", "gofmt", "package a\n\nfunc f() int {\n\treturn 1\n}\n", "package a\nfunc f() int {return 1}\n"),
    ],
)
async def test_other_languages_are_held_to_their_own_tools(
    scorer: Strategy, name: str, needs: str, good: str, bad: str
) -> None:
    if not Path("/usr/bin", needs).exists():
        pytest.skip(f"{needs} is not installed (infra/setup-toolchains.sh)")

    right, broken = await scorer.score(
        request_of(
            *(Answer(json.dumps({"files": {name: text}})) for text in (good, bad)),
            workspace={"files": {f"old_{name}": bad}},
        )
    )

    assert (right.score, right.parts) == (1.0, {"style": 1.0, "security": 1.0})
    assert broken.parts is not None and broken.parts["style"] <= 0.5


@pytest.mark.parametrize("scorer", ["security"], indirect=True)
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.js", "spawnSync('ls', [folder]);\n", "child_process.execSync(`ls ${folder}`);\n"),
        ("a.go", 'exec.Command("ls", folder)\n', 'exec.Command("sh", "-c", "ls "+folder)\n'),
        ("a.rs", 'Command::new("ls").arg(folder)\n', 'Command::new("sh").arg("-c").arg(folder)\n'),
    ],
)
async def test_a_hole_in_another_language_costs_half_unless_it_was_there(
    scorer: Strategy, name: str, good: str, bad: str
) -> None:
    texts = (good, bad, bad + bad, "\n".join((bad, *(f"say({number});" for number in range(300)))))
    written = [Answer(json.dumps({"files": {name: text}})) for text in texts]

    scores = await scorer.score(request_of(*written, workspace={"files": {"old.py": ""}}))
    (kept,) = await scorer.score(request_of(written[1], workspace={"files": {name: good + bad}}))

    assert [one.score for one in scores] == pytest.approx([1.0, 0.5, 1 / 3, 0.5])
    assert (scores[1].reason or "").endswith(f"{name}: shell")
    assert kept.score == 1.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scorer", ["0.5*style + 0.5*security"], indirect=True)
async def test_neither_padding_nor_another_name_hides_what_was_written(scorer: Strategy) -> None:
    bad = "def f(x):\n    l = eval('x'); return l\n"
    data = {"package.json": '{"import": [true, null]}', "notes.txt": "How to import a class.\n", "b.bin": "import\0"}
    data["more.jsonl"] = 300 * '{"text": "take a class", "ok": true, "n": -1.5e3}\n'

    plain, *padded, named, harmless = await scorer.score(
        request_of(
            Answer(json.dumps({"files": {"new.py": bad}})),
            Answer(json.dumps({"files": {"new.py": bad + "".join(f"# {number}\n" for number in range(300))}})),
            Answer(json.dumps({"files": {"new.py": bad + "\n" * 300 + "    return l\n" * 300}})),
            Answer(json.dumps({"files": {"code.txt": bad}})),
            Answer(json.dumps({"files": data})),
            workspace={"files": {"old.py": ""}},
        )
    )

    assert plain.parts is not None
    assert plain.parts["style"] < 0.4
    assert named.parts == plain.parts
    assert padded[0].parts == plain.parts
    assert padded[1].parts is not None
    assert padded[1].parts["style"] <= plain.parts["style"]
    assert (harmless.score, harmless.status) == (None, "unscorable")


def test_a_finding_costs_the_less_the_more_was_written_but_a_hole_is_a_hole() -> None:
    style = [STYLE.score(count, lines) for count, lines in ((0, 5), (1, 5), (1, 20), (1, 380))]
    assert style == pytest.approx([1, 0.5, 0.5, 0.95])
    assert [SECURITY.score(count, 10_000) for count in range(3)] == pytest.approx([1, 0.5, 1 / 3])


@pytest.mark.parametrize(
    ("own", "reference", "score"),
    [
        (([0.1] * 5, []), ([0.1] * 5, []), 1.0),
        (([0.2, 9.0, 0.2], []), ([0.1, 0.1, 0.1], []), 0.55),
        (([0.1], [20]), ([0.1], [10]), (1 + 0.55) / 2),
        (([0.1], [20]), ([0.1], []), 1.0),
        (([0.05], [5]), ([0.1], [10]), 1.0),
    ],
)
def test_the_median_of_what_was_taken_is_held_against_the_references(
    own: tuple[list[float], list[int]], reference: tuple[list[float], list[int]], score: float
) -> None:
    assert verdict([Taken(*own)], [Taken(*reference)]).score == pytest.approx(score)


@pytest.mark.parametrize("scorer", ["efficiency"], indirect=True)
async def test_what_is_fast_and_wrong_is_worth_nothing(scorer: Strategy) -> None:
    (wrong,) = await scorer.score(request_of(left("")))
    without = request_of(left(""))

    assert (wrong.score, wrong.reason) == (0.0, "not measured, for it does not pass a case: wrong value")
    (none,) = await scorer.score(ScoringRequest("t", "?", without.answers, criteria=without.criteria))
    assert none == SampleScore(
        status="unscorable", reason="nothing to measure by: the task has no reference, or no hidden cases"
    )


def test_they_take_no_argument() -> None:
    for name in ("style", "security", "efficiency"):
        with pytest.raises(ScorerError, match="takes no argument"):
            build_strategy(ScorerSettings.read(scorer=f"{name}:x"))


def test_the_workspaces_of_these_tests_are_wrong() -> None:
    assert all("price + count" in files[PLACES[language]] for language, files in WRONG.items())
