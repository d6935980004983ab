"""A Work answered by programs in sandboxes: what is published, what each end is called, and what is left behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ratchet.bus.topology import RESPONSES, ROLLOUTS_TOPIC, cancellations_topic
from ratchet.programs.declared import Program
from ratchet.programs.environments import Environments
from ratchet.rollouts.answers import key_of
from ratchet.rollouts.cancellations import TASK_CANCELLED
from ratchet.rollouts.rollout import Budget, BudgetSpent
from ratchet.service.errors import DiskFull, EngineError, Reject, SettingsError
from schemas.messages.response import Response, Sample
from schemas.messages.runner_rollouts import RunnerRollouts
from schemas.messages.task import Constraints, Task, TaskCancelled
from schemas.messages.work import Sampling, Work
from schemas.messages.workspace import Workspace
from services.agent.engines.engine import IdsRequest, TokenPiece
from services.agent.engines.scripted import EchoEngine
from services.runner.kept_rollouts import KeptRollouts
from services.runner.sandboxed import classify_end
from services.runner.settings import RunnerSettings
from tests.processes import marked
from tests.services.orchestrator.house import house as fleet_house
from tests.services.orchestrator.house import scored
from tests.services.runner.conftest import MakeHouse, cancelled, delivery, limits, python
from tests.waiting import until
from workbench.sandbox.job import End, Result

MakeWork = Callable[..., Work]

MARK = "ratchet-runner-test-mark"
CANCELLED_MARK = "ratchet-cancelled-test-mark"
HELD = """
import time
while not os.path.exists("/bound/go"): time.sleep(0.01)  # real time: until the test lets it go
"""
SAY = 'print(ask(sys.stdin.read()), os.environ["RATCHET_SAMPLE"])'


class Counting(EchoEngine):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        self.asked += 1
        async for piece in super().generate_ids(request):
            yield piece


class Leaving(EchoEngine):
    away: str | None = None

    def trouble(self) -> str | None:
        return self.away


async def test_a_group_is_one_response_with_a_rollout_for_each_sample(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    programs = {"says": python(SAY), "shouts": python("print(ask(sys.stdin.read()).upper())")}
    work = make_work(sampling=Sampling(n=4, max_tokens=200, temperature=0.5), reference="ab")
    async with make_house(programs) as house:
        await asyncio.gather(house.worker.handle(delivery(work)), house.worker.handle(delivery(work)))
        await house.worker.handle(delivery(work))
        kept = KeptRollouts(house.worker._settings.runner_dir, 10**9)

    published, *again = house.bus.deliveries_published(RESPONSES)
    response = Response.decode(published.body)
    assert (response.work, published.message_id, response.engine) == (work, "t-1/response", "echo")
    assert [(one.body, one.message_id) for one in again] == [(published.body, published.message_id)] * 2
    assert [(sample.text, sample.program) for sample in response.samples] == [
        ("sort: ba 0", "says"),
        ("SORT: BA", "shouts"),
        ("sort: ba 2", "says"),
        ("SORT: BA", "shouts"),
    ]
    for sample in response.samples:
        assert sample.segments is not None and sample.usage is not None
        assert (sample.status, sample.usage.calls, len(sample.segments)) == ("finished", 1, 1)
        assert 0 < (sample.usage.seconds or 0) < 60
    assert kept.bytes == 0


@pytest.mark.parametrize(
    ("task", "command", "code"),
    [
        ("stdin", (), "print(ask(sys.stdin.read()))"),
        ("argument", ("--ask={input}",), "print(ask(sys.argv[1].removeprefix('--ask=')))"),
        ("file", ("{input}",), "print(ask(open(sys.argv[1]).read()))"),
        ("environment", (), "print(ask(os.environ['RATCHET_INPUT']))"),
    ],
)
async def test_a_task_is_given_as_the_program_takes_it(
    task: Any, command: tuple[str, ...], code: str, make_house: MakeHouse, make_work: MakeWork
) -> None:
    given = python(code)
    program = Program(command=(*given.command, *command), data=given.data, task=task)
    async with make_house({"it": program}) as house:
        response = await house.answered(make_work(input="what is ä?"))

    assert [(sample.text, sample.status) for sample in response.samples] == [("what is ä?", "finished")]


async def test_its_answer_may_be_a_file_and_its_environment_is_what_was_declared(
    make_house: MakeHouse, make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
print("thinking")
open("out/answer.json", "w").write(json.dumps(sorted(os.environ))) if os.makedirs("out") is None else 0
"""
    program = python(code, answer_file="out/answer.json", environment={"MODE": "fast"})
    async with make_house({"it": program, "none": python("pass", answer_file="out/answer.json")}) as house:
        response = await house.answered(make_work(sampling=Sampling(n=2)))

    names = set(__import__("json").loads(response.samples[0].text))
    assert {"MODE", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "RATCHET_TASK_ID"} <= names
    assert {name for name in names if name.startswith("RATCHET_")} == {"RATCHET_SAMPLE", "RATCHET_TASK_ID"}
    assert (response.samples[1].text, response.samples[1].status) == ("", "finished")


async def test_a_folder_that_it_binds_is_seen_and_not_written(
    make_house: MakeHouse, make_work: MakeWork, passable: Path
) -> None:
    (passable / "main.py").write_text("open('/bound/x', 'w')")
    program = Program(command=("python3", "/bound/main.py"), binds={"/bound": passable})
    async with make_house({"it": program}) as house:
        response = await house.answered(make_work())

    assert response.samples[0].status == "failed"


SOLVE = """
import asyncio, urllib.request
from helper import asked
async def solve(task, base_url, api_key):
    print("thinking")
    return await asyncio.to_thread(asked, task, base_url, api_key)
async def give_up(task, base_url, api_key):
    raise ValueError("no idea")
"""
HELPER = """
import json, urllib.request
def asked(task, base_url, api_key):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": task}]}).encode()
    request = urllib.request.Request(base_url + "/chat/completions", body, {"Authorization": "Bearer " + api_key})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


async def test_a_coroutine_is_awaited_in_a_sandbox_and_what_it_returns_is_the_answer(
    make_house: MakeHouse, make_work: MakeWork, passable: Path
) -> None:
    (passable / "agent.py").write_text(SOLVE)
    (passable / "helper.py").write_text(HELPER)
    named = {name: Program(coroutine=f"agent:{name}", binds={"/agent": passable}) for name in ("solve", "give_up")}
    programs = {name: program.with_requirements(name, Environments(passable), "") for name, program in named.items()}
    async with make_house(programs) as house:
        response = await house.answered(make_work(input="what is ä?", sampling=Sampling(n=2, max_tokens=200)))

    assert [(sample.text, sample.status) for sample in response.samples] == [("what is ä?", "finished"), ("", "failed")]


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "exits with a code": ("print('half'); sys.exit(3)", {}, "failed"),
    "is ended by a signal": ("os.kill(os.getpid(), 9)", {}, "failed"),
    "hangs": ("import signal; print('half', flush=True); signal.pause()", {"seconds": 2}, "limit"),
    "will not die": (
        "import signal\nfor n in range(1, 32):\n  n in (9, 19) or signal.signal(n, signal.SIG_IGN)\n"
        "while True: signal.pause()",
        {"seconds": 0.7},
        "limit",
    ),
    "floods": ("while True: print('x' * 9999)", {"output_kb": 64}, "limit"),
    "forks without end": ("while True:\n  try: os.fork()\n  except OSError: pass", {"seconds": 1.5}, "limit"),
    "uses the processor": ("while True: pass", {"cpu_seconds": 0.5}, "limit"),
    "takes memory": ("import time; x = [bytes(1 << 20) + b'x' * (1 << 20) for _ in range(999)]", {}, ""),
    "fills the disk": ("open('f', 'wb').write(bytes(64 << 20))", {}, "failed"),
    "makes files without end": ("n = 0\nwhile True:\n  open(str(n), 'w'); n += 1", {"seconds": 20}, "limit"),
    "asks without end": ("while True: ask('x')", {"calls": 3}, "limit"),
    "has a long talk": ("while True: ask('x' * 60)", {"tokens": 100}, "limit"),
    "asks what is refused without end": (
        "while True:\n  try: ask('')\n  except urllib.error.HTTPError: pass\n  try: ask('x', n=2)\n"
        "  except urllib.error.HTTPError: pass",
        {"calls": 1},
        "limit",
    ),
    "stays as a daemon": (
        f"if os.fork() == 0:\n  os.setsid()\n  os.execvp('python3', ['python3', '-c', 'import signal; signal.pause()', "
        f"'{MARK}'])\nprint('left')",
        {},
        "finished",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_a_program_does_wrong_ends_its_rollout_and_no_other(
    what: str, make_house: MakeHouse, make_work: MakeWork
) -> None:
    code, given, status = BAD[what]
    programs = {"bad": python(code, limits=limits(**given)), "good": python(SAY)}
    async with make_house(programs) as house:
        response = await house.answered(make_work(sampling=Sampling(n=2, max_tokens=200)))

    bad, good = response.samples
    assert bad.status == status or (not status and bad.status in ("failed", "limit")), bad
    assert (good.text, good.status) == ("sort: ba 1", "finished")
    if what in ("exits with a code", "hangs"):
        assert bad.text == "half"
    assert (bad.says is None) == (bad.status == "finished") and good.says is None
    if what == "asks without end":
        assert bad.says is not None and bad.says.startswith("it called the model more than 3 times")
    assert marked(MARK) == []


def test_a_program_that_gives_up_when_a_limit_is_met_has_met_that_limit() -> None:
    """Whether it fails first, or is ended first, is a matter of moments."""
    program, gave_up = python(SAY), Result(End.EXITED, "it exited with 1", exit_code=1)
    met, off = Budget(calls=0), Budget(calls=1)
    with pytest.raises(BudgetSpent):
        met.take_call()
    off.call_off("its group is decided")

    assert [classify_end(program, gave_up, one).status for one in (met, off, Budget(calls=1))] == [
        "limit",
        "failed",
        "failed",
    ]


@pytest.mark.parametrize(
    ("constraints", "says"),
    [
        (Constraints(calls=2, tokens=10_000), "it called the model more than 2 times"),
        (Constraints(tokens=20), "the model sampled 20 tokens for it"),
        (Constraints(calls=9, seconds=1.5), None),
    ],
)
async def test_a_task_lowers_the_limits_of_a_program_also_when_it_comes_again(
    constraints: Constraints, says: str | None, make_house: MakeHouse, make_work: MakeWork
) -> None:
    code = "while True: ask('x' * 8)" if says else "import signal; signal.pause()"
    work = make_work(constraints=constraints)
    async with make_house({"it": python(code, limits=limits(calls=50))}) as house:
        response = await house.answered(work)
        again = Work.decode(work.encode()).constraints

    (sample,) = response.samples
    assert sample.status == "limit" and str(sample.says).startswith(says or "")
    assert again == constraints


async def test_a_task_that_names_a_tool_its_program_does_not_have_is_refused(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    async with make_house({"it": python(SAY)}) as house:
        response = await house.answered(make_work(constraints=Constraints(tools=("file_read",))))

    assert response.samples == () and "program it: constraints.tools: it has none of the tools" in str(response.error)


async def test_why_programs_that_do_not_even_start_ended_is_in_the_users_result_and_in_the_log(
    tmp_path: Path, make_house: MakeHouse
) -> None:
    programs = {
        "absent": Program(command=("sh", "-c", "no-such-agent --fast")),
        "breaks": python("import an_agent_that_is_not_installed", answer_file="answer"),
    }
    async with fleet_house(tmp_path / "logs") as fleet, make_house(programs, of_fleet=fleet.bus) as running:
        for subscription in running.worker.subscriptions():
            await fleet.bus.consume(subscription.queue, subscription.handler, prefetch=8)
        await fleet.submit(Task(task_id="t1", input="x", samples=2))
        await until(lambda: len(fleet.bus.deliveries_published(RESPONSES)) == 1)
        await fleet.reward(scored(Response.decode(fleet.bus.deliveries_published(RESPONSES)[0].body), 0.0, 0.0))
        (result,) = await fleet.results()
        (absent, breaks) = fleet.logged()

    assert (result.status, result.sample) == ("failed", 0)
    assert "each of its 2 rollouts ended before it called the model" in (result.reason or "")
    assert absent.sample_says is not None and breaks.sample_says is not None
    assert absent.sample_says.startswith("it exited with 127, ") and "no-such-agent: " in absent.sample_says
    assert breaks.sample_says.endswith("ModuleNotFoundError: No module named 'an_agent_that_is_not_installed'")
    assert result.rollouts is not None
    assert [one.says for one in result.rollouts] == [absent.sample_says, breaks.sample_says]


HOSTILE = """
import socket
got = []
def reaches(name, kind, place):
    try:
        with socket.socket(kind) as one:
            one.settimeout(3)
            one.connect(place)
            got.append(name)
    except OSError:
        pass
reaches("the agent", socket.AF_INET, ("127.0.0.1", int(sys.argv[1])))
reaches("the network", socket.AF_INET, ("192.0.2.1", 80))
for path in ("/run/ratchet", "/var/run/docker.sock"):
    reaches(path, socket.AF_UNIX, path)
def status(key):
    try:
        return ask("x", key=key) and 200
    except urllib.error.HTTPError as error:
        return error.code
got += [status(""), status("rollout-" + "x" * 43), status(os.environ["OPENAI_API_KEY"])]
print(json.dumps(got), [name for name in os.listdir("/proc/self/fd") if int(name) > 3])
"""


async def test_the_recorder_is_the_only_way_out_and_takes_the_rollouts_own_key_alone(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    async with make_house({"it": python("pass")}) as house:
        (url,) = house.worker._settings.runner_agents["small"]
        port = url.rpartition(":")[2]
        outside = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        )
        assert await outside.wait() == 0
        hostile = python(HOSTILE)
        house.worker._programs._programs["it"] = Program(command=(*hostile.command, port), data=hostile.data)
        response = await house.answered(make_work())

    assert response.samples[0].text == "[401, 401, 200] []", response.samples[0]


async def test_what_was_finished_before_is_not_run_again(make_house: MakeHouse, make_work: MakeWork) -> None:
    engine = Counting()
    work = make_work(sampling=Sampling(n=3, max_tokens=200))
    async with make_house({"it": python(SAY)}, engine) as house:
        kept = KeptRollouts(house.worker._settings.runner_dir, 10**9)
        kept.put(key_of(work), {1: Sample(text="from before", status="failed", program="it")})
        response = await house.answered(work)

    assert [sample.text for sample in response.samples] == ["sort: ba 0", "from before", "sort: ba 2"]
    assert engine.asked == 2
    assert kept.of(key_of(work)) == {}


async def test_a_disk_that_takes_nothing_costs_time_and_no_rollout(make_house: MakeHouse, make_work: MakeWork) -> None:
    engine = Counting()
    async with make_house({"it": python(SAY)}, engine, runner_keep_gb=1e-9) as house:
        work = make_work(sampling=Sampling(n=2, max_tokens=200))
        for _ in range(2):
            with pytest.raises(DiskFull):
                await house.worker.handle(delivery(work))
        assert house.bus.deliveries_published(RESPONSES) == []
        house.worker._groups.kept._most_bytes = 10**9
        response = await house.answered(work)

    assert [sample.text for sample in response.samples] == ["sort: ba 0", "sort: ba 1"]
    assert engine.asked == 2


async def test_rollouts_that_no_turn_comes_for_are_lost_and_the_others_are_published_in_time(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    slow = python("import signal; print('half', flush=True); signal.pause()", limits=limits())
    async with make_house({"slow": slow}, sandbox_runs_at_once=1) as house:
        deadline = datetime.now(UTC) + timedelta(seconds=6)
        response = await house.answered(make_work(deadline=deadline, sampling=Sampling(n=2)))
        assert datetime.now(UTC) < deadline

    assert [(sample.text, sample.status) for sample in response.samples] == [("half", "limit"), ("", "lost")]


async def test_high_priority_goes_first_where_places_are_few(
    make_house: MakeHouse, make_work: MakeWork, passable: Path
) -> None:
    held = python(HELD, binds={"/bound": passable}, limits=limits())
    async with make_house({"it": held}, sandbox_runs_at_once=1) as house:
        running = []
        for number, priority in enumerate((0, 0, 0, 9)):
            work = make_work(f"t-{number}", priority=priority)
            running.append(asyncio.create_task(house.worker.handle(delivery(work))))
            await until(lambda: house.worker._groups.slots.waiting == number)  # noqa: B023
            await until(lambda: house.worker.running().items, "the first has its turn")
        (passable / "go").touch()
        await asyncio.gather(*running)

    order = [Response.decode(one.body).task_id for one in house.bus.deliveries_published(RESPONSES)]
    assert order.index("t-3") == 1


async def test_a_rollout_that_the_model_was_away_for_is_lost_and_not_kept(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    class Away(EchoEngine):
        async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
            raise EngineError("its process was killed")
            yield

    async with make_house({"it": python(SAY)}, Away()) as house:
        work = make_work(deadline=datetime.now(UTC) + timedelta(seconds=3))
        response = await house.answered(work)
        kept = KeptRollouts(house.worker._settings.runner_dir, 10**9)

    assert [(sample.text, sample.status) for sample in response.samples] == [("", "lost")]
    assert kept.of(key_of(work)) == {}


async def test_an_agent_that_is_away_is_waited_for_and_told_as_a_trouble(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    engine = Leaving()
    async with make_house({"it": python(SAY)}, engine) as house:
        engine.away = "it was killed"
        running = asyncio.create_task(house.worker.handle(delivery(make_work())))
        await until(lambda: "it was killed" in (house.worker.trouble() or ""))
        engine.away = None
        await running
        assert house.worker.trouble() is None

    response = Response.decode(house.bus.deliveries_published(RESPONSES)[0].body)
    assert [sample.status for sample in response.samples] == ["finished"]


async def test_what_runs_is_shown_while_it_runs(make_house: MakeHouse, make_work: MakeWork) -> None:
    code = "ask('hello'); import signal; signal.pause()"
    told: list[RunnerRollouts] = []
    async with make_house({"it": python(code)}, sandbox_runs_at_once=1) as house:
        await house.bus.listen(ROLLOUTS_TOPIC, lambda news: told.append(RunnerRollouts.decode(news.body)))
        running = asyncio.create_task(house.worker.handle(delivery(make_work(sampling=Sampling(n=3)))))
        await until(lambda: any(one.sampled_tokens >= len("hello") for one in house.worker.running().items))
        shown = house.worker.running()
        await until(lambda: any(one.calls for news in told for one in news.items), "it is told over the bus")
        await cancelled(running)
        assert house.worker.running().items == []

    (one,) = shown.items
    assert (one.task_id, one.agent_id, one.program, one.sample, one.calls) == ("t-1", "small", "it", 0, 1)
    assert (shown.waiting, shown.at_once) == (2, 1)
    assert 0 < one.ends_within_s <= 300
    (heard,) = told[-1].items
    assert (heard.task_id, heard.program, heard.sample, heard.state) == ("t-1", "it", 0, "running")
    assert (told[-1].waiting, told[-1].at_once) == (2, 1)


async def test_the_end_of_a_handler_ends_what_it_ran(make_house: MakeHouse, make_work: MakeWork) -> None:
    code = f"os.execvp('python3', ['python3', '-c', 'import signal; signal.pause()', '{MARK}'])"
    async with make_house({"it": python(code)}) as house:
        running = asyncio.create_task(house.worker.handle(delivery(make_work(sampling=Sampling(n=2)))))
        await until(lambda: len(marked(MARK)) >= 2, "the programs run")
        await cancelled(running)
        assert marked(MARK) == []
        assert house.bus.deliveries_published(RESPONSES) == []


async def test_a_work_that_no_program_can_answer_is_answered_with_why(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    async with make_house({"it": python("pass")}) as house:
        response = await house.answered(make_work(programs=("aider",)))
        with pytest.raises(Reject, match="'coder', which has no programs here"):
            await house.worker.handle(delivery(make_work(agent_id="coder")))
        late = make_work("late", deadline=datetime.now(UTC) - timedelta(seconds=1))
        kept = KeptRollouts(house.worker._settings.runner_dir, 10**9)
        kept.put(key_of(late), {0: Sample(text="in vain", status="finished", program="it")})
        await house.worker.handle(delivery(late))

    assert kept.of(key_of(late)) == {}, "nobody comes back for it"
    assert response.error == "agent small has no program 'aider': it has it"
    assert len(house.bus.deliveries_published(RESPONSES)) == 1


async def test_what_a_program_changes_in_its_workspace_is_a_patch_whatever_ended_it(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    code = """
text = open("add.py").read()
open("add.py", "w").write(text.replace("-", "+"))
os.remove("old.txt")
open("note.txt", "w").write("done\\n")
sys.exit(int(os.environ["RATCHET_SAMPLE"]))
"""
    files = {"add.py": "def add(a, b):\n    return a - b\n", "old.txt": "old\n"}
    workspace = Workspace(files=files, collect=("note.txt",))
    async with make_house({"it": python(code)}) as house:
        response = await house.answered(make_work(workspace=workspace, sampling=Sampling(n=2)))
        wrong = await house.answered(make_work("wrong", workspace=Workspace(folder="/etc")))

    assert [sample.status for sample in response.samples] == ["finished", "failed"]
    for sample in response.samples:
        assert sample.artifact is not None
        assert "+    return a + b" in sample.artifact.patch and "deleted file" in sample.artifact.patch
        assert sample.artifact.files == {"note.txt": "done\n"}
    assert wrong.error is not None and "its workspace can't be used" in wrong.error


async def test_a_program_finds_its_workspace_by_the_path_that_its_task_names(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    code = "open('/app/note.txt', 'w').write(open('/app/given.txt').read().upper())"
    workspace = Workspace(files={"given.txt": "hello\n"}, seen_at="/app")
    async with make_house({"it": python(code)}) as house:
        response = await house.answered(make_work(workspace=workspace))

    (sample,) = response.samples
    assert sample.artifact is not None and "+HELLO" in sample.artifact.patch, sample


async def test_a_program_that_is_not_to_be_found_inside_is_refused_at_the_start(make_house: MakeHouse) -> None:
    with pytest.raises(SettingsError, match="program it: 'no-such-program' is not to be found in its sandbox"):
        async with make_house({"it": Program(command=("no-such-program",))}):
            pass


async def test_a_sandbox_that_does_not_hold_is_no_place_to_start(make_house: MakeHouse, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="RATCHET_SANDBOX_CGROUP"):
        async with make_house({"it": python("pass")}, sandbox_cgroup=tmp_path):
            pass


def test_how_much_of_their_room_finished_rollouts_take_is_told(tmp_path: Path) -> None:
    kept = KeptRollouts(tmp_path, 10_000)

    kept.put("a", {0: Sample(text="x" * 2000, status="finished", program="it")})
    taken = REGISTRY.get_sample_value("ratchet_runner_kept_share")
    kept.remove("a")

    assert 0.2 < (taken or 0.0) < 0.3
    assert REGISTRY.get_sample_value("ratchet_runner_kept_share") == 0.0


def test_addresses_of_agents_are_read_by_agent_and_replica() -> None:
    settings = RunnerSettings.model_validate({"runner_agents": "small=http://a:1/ http://b:2, coder=http://c:3"})

    assert settings.runner_agents == {"small": ("http://a:1", "http://b:2"), "coder": ("http://c:3",)}
    with pytest.raises(SettingsError, match="coder=http://host:8710"):
        RunnerSettings().require_agents(("coder",))


async def test_a_cancelled_task_has_its_rollouts_ended_and_its_waiting_work_is_not_begun(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    hangs = f"import subprocess; subprocess.run(['python3', '-c', 'import signal; signal.pause()', '{CANCELLED_MARK}'])"
    async with make_house({"hangs": python(hangs, limits=limits(seconds=600))}, sandbox_runs_at_once=1) as house:
        # given one task of which one rollout runs and one waits
        work = make_work(sampling=Sampling(n=2, max_tokens=200))
        handled = asyncio.create_task(house.worker.handle(delivery(work)))
        await until(lambda: bool(marked(CANCELLED_MARK)))
        # when it is cancelled, and another whose Work has not come yet
        for task_id in (work.task_id, "t-2"):
            body = TaskCancelled(task_id=task_id, agent_id="small").encode()
            await house.bus.broadcast(cancellations_topic("small"), body, type=TaskCancelled.TYPE, message_id=task_id)
        await handled
        await house.worker.handle(delivery(make_work("t-2")))

    # then its rollouts are gone, what they took is told, and nothing of the other was begun
    assert marked(CANCELLED_MARK) == []
    (told,) = house.bus.deliveries_published(RESPONSES)
    samples = Response.decode(told.body).samples
    assert [(one.status, one.says) for one in samples] == [("cancelled", TASK_CANCELLED)] * 2
    assert samples[0].usage is not None
