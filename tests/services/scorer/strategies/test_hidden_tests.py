"""Programs judged by hidden cases: the oracle earns 1, nothing earns 0, and no cheat earns anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore
from services.cli.verify.cheats import cheats, no_ops
from services.scorer.hidden_tests.languages import TOOLS
from services.scorer.hidden_tests.plan import plan_of
from services.scorer.hidden_tests.running import WHERE_TOOLS_ARE, missing_tool
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.hidden_tests import HiddenTests
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest

FUNCTIONS = [
    {"function": "add", "arguments": [2, 3], "expected": 5},
    {"function": "add", "arguments": [-7, 24], "expected": 17},
    {"function": "add", "arguments": [40, 2], "expected": 42, "name": "the answer"},
]
COMMANDS = [
    {"command": ["./program"], "stdin": "2 3", "expected": 5},
    {"command": ["./program"], "stdin": "-7 24", "expected": 17},
    {"command": ["./program"], "stdin": "40 2", "expected_text": "42"},
]
ORACLES = {
    ("python", "functions"): "def add(a, b):\n    print('adding', a)\n    return a + b\n",
    ("javascript", "functions"): "function add(a, b) {\n  console.log('adding', a);\n  return a + b;\n}\n",
    ("go", "functions"): "func add(a int, b int) int { return a + b }\n",
    ("rust", "commands"): (
        "use std::io::Read;\nfn main() {\n    let mut text = String::new();\n"
        "    std::io::stdin().read_to_string(&mut text).unwrap();\n"
        '    println!("{}", text.split_whitespace().map(|one| one.parse::<i64>().unwrap()).sum::<i64>());\n}\n'
    ),
}
LANGUAGES = list(ORACLES)


def criteria(language: str, kind: str, cases: list[dict[str, Any]] | None = None, **more: Any) -> str:
    given = cases or (FUNCTIONS if kind == "functions" else COMMANDS)
    return json.dumps({"tests": {"language": language, "cases": given, **more}})


@pytest.fixture
async def tests() -> AsyncIterator[HiddenTests]:
    strategy = HiddenTests.build("", ScorerSettings.read())
    await strategy.start()
    yield strategy
    await strategy.stop()


async def scored(strategy: HiddenTests, text: str, asked: str) -> SampleScore:
    return (await strategy.score(ScoringRequest("t", "add", (Answer(text),), criteria=asked)))[0]


def need(language: str) -> None:
    tool = TOOLS[language]  # type: ignore[index]
    if shutil.which(tool, path=WHERE_TOOLS_ARE) is None:
        pytest.skip(f"no {tool} below /usr: sh infra/setup-toolchains.sh {language}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("language", "kind"), LANGUAGES)
async def test_the_oracle_earns_one_and_nothing_and_no_cheat_earns_anything(
    tests: HiddenTests, language: str, kind: str
) -> None:
    """Hidden values that a constant can't hit: true, 0, 1 and null are not among them."""
    need(language)
    functions = ["add"] if kind == "functions" else []
    others = no_ops(language, functions) | cheats(language, functions)

    answers = tuple(map(Answer, [ORACLES[language, kind], *others.values()]))
    asked = criteria(language, kind)
    oracle, *scores = await tests.score(ScoringRequest("t", "add", answers, criteria=asked))

    assert (oracle.score, oracle.reason) == (1.0, "3 of 3 cases")
    assert {what: score.score for what, score in zip(others, scores, strict=True) if score.score != 0.0} == {}


def test_there_are_twelve_cheats_in_each_language() -> None:
    counts: Mapping[str, int] = {
        language: len(cheats(language, ["add"] if kind == "functions" else [])) for language, kind in LANGUAGES
    }

    assert {language: count for language, count in counts.items() if count < 12} == {}


async def test_a_share_of_the_cases_is_that_share_of_the_score(tests: HiddenTests) -> None:
    one = await scored(tests, "def add(a, b): return {2: 5, -7: 17}.get(a, 0)", criteria("python", "functions"))

    assert one.score == pytest.approx(2 / 3)
    assert one.reason == "2 of 3 cases; the answer: wrong value"


async def test_the_reason_says_how_each_case_ended_and_never_what_was_expected(tests: HiddenTests) -> None:
    text = (
        "import os\ndef add(a, b):\n    if a == 2:\n        os.abort()\n"
        "    if a < 0:\n        raise OSError(b)\n    return 'x'\n"
    )
    one = await scored(tests, text, criteria("python", "functions"))

    assert one.score == 0
    assert one.reason is not None
    assert "case 1: it was ended by SIGABRT" in one.reason
    assert "case 2: it exited with 1" in one.reason
    assert "the answer: wrong value" in one.reason
    assert "42" not in one.reason


async def test_a_program_in_several_files_and_the_tasks_own_beside_it(tests: HiddenTests) -> None:
    answer = json.dumps(
        {"files": {"solution.py": "import helper\nadd = helper.add\n", "helper.py": "def add(a, b): return a + b\n"}}
    )
    asked = criteria(
        "python",
        "functions",
        [*FUNCTIONS, {"command": ["cat", "data.txt"], "expected_text": "the task's own"}],
        files={"data.txt": "the task's own"},
    )

    assert (await scored(tests, answer, asked)).score == 1.0


async def test_a_function_of_javascript_may_be_written_in_many_ways(tests: HiddenTests) -> None:
    need("javascript")
    ways = (
        "module.exports = { add: (a, b) => a + b };",
        "export function add(a, b) { return a + b; }",
        "const add = (a, b) => a + b;",
        "module.exports = (a, b) => a + b;",
        "import assert from 'node:assert';\nfunction add(a, b) { assert.ok(true); return a + b; }",
        "import {\n  ok,\n} from 'assert';\nconst add = (a, b) => { ok(true); return a + b; };",
        "export default function add(a, b) { return a + b; }",
        "export default { add: (a, b) => a + b };",
        "#!/usr/bin/env node\nconst add = (a, b) => a + b;",
        "function add(a, b) { process.stdout.write('adding\\n'); return a + b; }",
        "setInterval(() => {}, 1000);\nfunction add(a, b) { return a + b; }",
    )

    assert await worthless(tests, ways, criteria("javascript", "functions")) == []


async def test_a_function_of_go_may_have_any_signature(tests: HiddenTests) -> None:
    need("go")
    ways = (
        "func add(a ...int) int { return a[0] + a[1] }",
        "package main\n\nfunc add(a, b float64) float64 { return a + b }",
    )

    assert await worthless(tests, ways, criteria("go", "functions")) == []


async def worthless(strategy: HiddenTests, texts: Sequence[str], asked: str) -> list[str]:
    """Those of the answers that do not earn 1."""
    scores = await strategy.score(ScoringRequest("t", "add", tuple(map(Answer, texts)), criteria=asked))
    return [text for text, one in zip(texts, scores, strict=True) if one.score != 1.0]


async def test_what_does_not_build_is_worth_nothing_and_says_so(tests: HiddenTests) -> None:
    need("rust")
    one = await scored(tests, "fn main() { let x: i32 = true; }", criteria("rust", "commands"))

    assert one.score == 0.0
    assert one.reason is not None
    assert one.reason.startswith("it does not build: ")


async def test_a_task_without_cases_is_unscorable(tests: HiddenTests) -> None:
    one = await scored(tests, "x", "be nice")

    assert (one.score, one.status) == (None, "unscorable")


async def test_equal_answers_are_run_once_and_fresh_ones_each(tests: HiddenTests) -> None:
    answers = (Answer("def add(a, b): return a + b"),) * 3
    request = ScoringRequest("t", "add", answers, criteria=criteria("python", "functions"))

    assert [one.score for one in await tests.score(request)] == [1.0] * 3


def test_it_is_a_scorer_by_name() -> None:
    assert build_strategy(ScorerSettings.read(scorer="tests")).identity.id == "tests"
    with pytest.raises(ScorerError, match="takes no argument"):
        build_strategy(ScorerSettings.read(scorer="tests:python"))


def test_a_compiler_that_needs_proc_is_missing_where_there_is_none() -> None:
    rust, go = plan_of(criteria("rust", "commands")), plan_of(criteria("go", "functions"))

    assert "rustc reads /proc" in (missing_tool(rust, has_proc=False) or "")
    assert missing_tool(go, has_proc=False) == missing_tool(go)


async def test_it_refuses_to_start_where_no_sandbox_holds() -> None:
    from pathlib import Path

    strategy = HiddenTests.build("", ScorerSettings.read(sandbox_cgroup=Path("/nowhere")))

    with pytest.raises(ScorerError, match=r"refuses to without a sandbox: .*RATCHET_SANDBOX_CGROUP"):
        await strategy.start()
