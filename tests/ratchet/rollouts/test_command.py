"""A program of somebody else's, in a process of its own, over HTTP."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ratchet.rollouts import guard
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import Program, program_name, run_recorded, run_with
from ratchet.rollouts.rollout import RecordedRollout
from tests.processes import is_gone
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.waiting import wait_until

AGENT = """
import sys, openai
client = openai.OpenAI()
messages = [{"role": "user", "content": "What is in it?"}]
for further in ("Sure?", "Why?"):
    stream = client.chat.completions.create(model="any", messages=messages, stream=True)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": further}]
print(said)
"""


def rollout() -> RecordedRollout:
    answers = iter(("A coin.", "Gold."))
    engine = ScriptedEngine(lambda prompt: [*codec().encode(next(answers)), SPECIAL.index("<|im_end|>")])
    return RecordedRollout(template("qwen2_5"), engine, model="small")


async def test_what_it_asks_is_recorded_and_what_it_prints_is_its_answer() -> None:
    sample = await run_recorded(rollout(), [sys.executable, "-c", AGENT], timeout_s=60)

    assert (sample.text, sample.status) == ("Gold.", "finished")
    assert sample.segments is not None and sample.usage is not None
    (segment,) = sample.segments
    assert [turn.content for turn in segment.turns] == ["What is in it?", "A coin.", "Sure?", "Gold."]
    assert (sample.usage.calls, sample.usage.breaks) == (2, {})


@pytest.mark.parametrize(
    ("code", "timeout_s", "status"),
    [
        ("print('half'); raise SystemExit(3)", 60, ("failed", "it exited with 3")),
        ("import os; os.kill(os.getpid(), 9)", 60, ("failed", "it exited with 137")),
        ("__import__('signal').pause()", 0.2, ("limit", "it was ended after 0.2 s")),
        ("while True: print('x' * 9999)", 60, ("limit", "it printed more than 1,048,576 bytes")),
    ],
)
async def test_one_that_fails_or_does_not_end_has_a_status_and_says_why(
    code: str, timeout_s: float, status: tuple[str, str]
) -> None:
    sample = await run_recorded(rollout(), [sys.executable, "-c", code], timeout_s=timeout_s)

    assert ((sample.status, sample.says), sample.segments) == (status, None)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 agent.py", "agent.py"),
        ("/usr/bin/python3.11 -u -W once tools/agent.py --fast", "agent.py"),
        ("python -Im my.agent -v", "my.agent"),
        ("python -c code", "python"),
        ("bash -e run.sh", "run.sh"),
        ("sh -lc run", "sh"),
        ("node --require x agent.js", "agent.js"),
        ("node -e 1", "node"),
        ("aider --yes", "aider"),
        ("python3", "python3"),
    ],
)
def test_a_program_is_called_by_its_script_and_not_by_what_runs_it(command: str, name: str) -> None:
    assert program_name(command.split()) == name


async def test_its_input_is_on_its_stdin_and_the_key_ends_with_it() -> None:
    code = "import os, sys; print(sys.stdin.read(), os.environ['OPENAI_API_KEY'], sep='|')"
    recorder = Recorder()
    program = Program((sys.executable, "-c", code), stdin="sort: ba")
    sample = await run_with(recorder, "http://nowhere/v1", rollout(), program, timeout_s=60)

    asked, _, key = sample.text.partition("|")
    assert asked == "sort: ba"
    with pytest.raises(KeyError):
        recorder.end(key)


async def test_behind_a_label_each_line_of_its_stderr_is_told_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    written = "echo one >&2; printf '\\377\\n\\ntwo' >&2; echo said"
    recorder = Recorder()
    async with recorder.serving() as base_url:
        program = Program(("sh", "-c", written), label="[3] ")
        sample = await run_with(recorder, base_url, rollout(), program, timeout_s=60)

    assert sample.text == "said"
    assert capsys.readouterr().err == "[3] one\n[3] \ufffd\n[3] \n[3] two\n"


async def test_a_run_that_the_engine_was_away_for_is_lost_and_not_the_programs_fault() -> None:
    code = AGENT.replace("OpenAI()", "OpenAI(max_retries=0)")
    recorded = rollout()
    recorded._engine.fails_after = 1  # type: ignore[attr-defined]
    sample = await run_recorded(recorded, [sys.executable, "-c", code], timeout_s=60)

    assert sample.status == "lost"


LEAVING = """
import openai, os
stream = openai.OpenAI().chat.completions.create(
    model="any", messages=[{"role": "user", "content": "What is in it?"}], stream=True
)
print(next(chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content), flush=True)
os._exit(0)
"""


async def test_what_was_sampled_when_a_program_ended_is_kept_as_aborted() -> None:
    engine = ScriptedEngine(lambda prompt: codec().encode("A coin in a box"))
    engine.gate.clear()
    recorded = RecordedRollout(template("qwen2_5"), engine, model="small")
    sample = await run_recorded(recorded, [sys.executable, "-c", LEAVING], timeout_s=60)

    assert (sample.text, sample.status) == ("A", "finished")
    assert sample.segments is not None and sample.usage is not None
    assert [segment.sampled_tokens for segment in sample.segments] == [1]
    assert (sample.usage.breaks, engine.closed) == ({"aborted": 1}, 1)


HELD = """
import os, subprocess, sys
held, holding = os.pipe()
code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
command = [sys.executable, "-I", "-S", sys.argv[1], str(held), sys.executable, "-c", code]
subprocess.Popen(command, pass_fds=(held,), start_new_session=True)
os.close(held)
sys.stdin.read()
"""


def test_a_program_does_not_outlive_the_kill_of_what_recorded_it() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", HELD, guard.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    program = int(starter.stdout.readline())
    assert not is_gone(program)

    starter.kill()
    starter.communicate()

    wait_until(lambda: is_gone(program))


async def test_a_token_of_the_users_own_is_not_sent_in_place_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-another-server")
    code = "import os; print(os.environ.get('ANTHROPIC_AUTH_TOKEN'), 'ANTHROPIC_API_KEY' in os.environ)"

    sample = await run_recorded(rollout(), [sys.executable, "-c", code], timeout_s=60)

    assert sample.text == "None True"


async def test_a_proxy_of_the_users_is_not_asked_for_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "example.com")

    sample = await run_recorded(rollout(), [sys.executable, "-c", AGENT], timeout_s=60)

    assert (sample.text, sample.status) == ("Gold.", "finished")
