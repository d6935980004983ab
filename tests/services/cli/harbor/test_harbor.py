"""Harbor task folders: read as tasks, refused with a sentence, judged by their tests/test.sh."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.messages.task import Task
from services.cli.app import app
from services.cli.eval.task_set import named_set
from services.cli.harbor import NeedsEngine, read_dockerfile, read_task
from services.cli.terminal import UsageError
from services.scorer.hidden_tests.plan import plan_of
from services.scorer.hidden_tests.running import reward_of

TASKS = Path(__file__).with_name("tasks")
CONTEXT = {"a.txt": "A", "src/b.txt": "B", "src/in/c.txt": "C"}
Edit = Callable[[Path], None]


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("COPY a.txt .", {"a.txt": "A"}),
        ("COPY a.txt /app/given.txt", {"given.txt": "A"}),
        ("COPY a.txt data/", {"data/a.txt": "A"}),
        ('COPY ["a.txt", "./"]', {"a.txt": "A"}),
        ("COPY src .", {"b.txt": "B", "in/c.txt": "C"}),
        ("COPY src/in a.txt ./to", {"to/c.txt": "C", "to/a.txt": "A"}),
        ("ADD --chown=me . /app", CONTEXT),
        ("WORKDIR deep\nCOPY \\\n  a.txt .", {"a.txt": "A"}),
        ("# RUN make\nLABEL a=b", {}),
    ],
)
def test_files_that_a_dockerfile_copies_are_the_workspaces(lines: str, files: dict[str, str]) -> None:
    image = read_dockerfile(f"FROM docker.io/python:3.12-slim\nWORKDIR /app\n{lines}\n", CONTEXT)

    assert image.files == files
    assert image.language == "python"
    assert image.directory == ("/app/deep" if "deep" in lines else "/app")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM debian\nWORKDIR /app\nRUN apt-get install -y curl", "RUN apt-get install -y curl"),
        ("FROM nvidia/cuda:12\nWORKDIR /app", "FROM nvidia/cuda:12"),
        ("FROM node AS build\nWORKDIR /app", "FROM node AS build"),
        ("FROM node\nFROM node\nWORKDIR /app", "FROM node"),
        ("FROM debian", "no WORKDIR"),
        ("WORKDIR /app", "no FROM"),
        ("FROM debian\nWORKDIR /app\nCOPY a.txt /etc/", "/etc/a.txt is copied outside of WORKDIR /app"),
        ("FROM debian\nWORKDIR /app\nCOPY a.txt ../a.txt", "/a.txt is copied outside"),
        ("FROM debian\nWORKDIR /app\nCOPY *.txt .", r"the pattern \*.txt"),
        ("FROM debian\nWORKDIR /app\nCOPY ../a.txt .", "no such file in environment/"),
        ("FROM debian\nWORKDIR /app\nCOPY --from=build a b", "COPY --from"),
        ("FROM debian\nWORKDIR $HOME", "the pattern"),
        ("FROM debian\nWORKDIR /usr/src/app", "WORKDIR /usr/src/app"),
    ],
)
def test_a_dockerfile_that_has_to_be_built_is_refused(text: str, why: str) -> None:
    with pytest.raises(NeedsEngine, match=why):
        read_dockerfile(text, CONTEXT)


def test_a_folder_is_a_task_whose_tests_and_solution_the_agent_never_gets() -> None:
    found = read_task(TASKS / "greet")

    task = Task.model_validate({"task_id": "t", **found.line})
    plan = plan_of(task.criteria)
    assert task.workspace is not None
    assert (task.workspace.files, task.workspace.seen_at) == ({"name.txt": "Zara\n"}, "/app")
    assert "greeting" in str(task.input)
    assert task.reference is None
    assert plan.script is not None
    assert (plan.script.seen_at, plan.script.environment) == ("/app", {"GREETING": "Hello"})
    assert (plan.limits.wall_s, plan.limits.memory_mib) == (30.0, 256)
    assert task.constraints is not None and task.constraints.seconds == 60.0
    assert found.solution is not None
    assert "test.sh" not in json.dumps(found.line["workspace"])


def write(name: str, text: str) -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return edit


def remove(name: str) -> Edit:
    return lambda folder: (folder / name).unlink()


def link(name: str) -> Edit:
    return lambda folder: (folder / name).symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (remove("task.toml"), "greet is no Harbor task, and holds none: there is no task.toml"),
        (write("task.toml", "[verifier"), r"task.toml is no TOML"),
        (write("task.toml", "[verifier]\ntimeout_sec = 0"), r"task.toml: verifier.timeout_sec: .*greater than 0"),
        (write("task.toml", "[agent]\ntimeout_sec = 'long'"), r"task.toml: agent.timeout_sec: "),
        (write("task.toml", "[environment]\ngpus = 1"), r"task.toml: environment.gpus: "),
        (write("task.toml", "[environment]\nworkdir = '/usr/x'"), r"task.toml: environment.workdir: .*such as /app"),
        (write("task.toml", "[[environment.mcp_servers]]\nname = 'x'"), r"environment.mcp_servers: "),
        (write("task.toml", "[verifier]\nenvironment_mode = 'separate'"), r"verifier.environment_mode: "),
        (write("task.toml", "[verifier.env]\nKEY = '${KEY}'"), r"verifier.env.KEY: no variable of this machine"),
        (write("task.toml", "[[steps]]\nname = 'one'"), r"task.toml: steps: "),
        (remove("instruction.md"), r"instruction.md can't be read: No such file"),
        (write("instruction.md", " \n"), r"instruction.md is empty"),
        (remove("tests/test.sh"), r"tests holds no test.sh"),
        (write("tests/big.txt", "x" * 100_000), r"tests holds more than 90,000 characters"),
        (link("tests/secret"), r"tests/secret is a link"),
        (link("environment/secret"), r"environment/secret is a link"),
        (lambda folder: (folder / "tests/a.bin").write_bytes(b"\xff\xfe"), r"tests/a.bin is no text"),
        (remove("environment/Dockerfile"), r"environment/Dockerfile can't be read"),
        (write("environment/Dockerfile", "FROM x\nRUN y"), r"environment/Dockerfile needs a container engine.*FROM x"),
        (write("environment/docker-compose.yaml", "services: {}"), r"docker-compose.yaml needs a container engine"),
    ],
)
def test_a_folder_that_cannot_be_run_is_refused_by_file_and_key(tmp_path: Path, edit: Edit, why: str) -> None:
    folder = tmp_path / "greet"
    shutil.copytree(TASKS / "greet", folder)
    edit(folder)

    with pytest.raises(UsageError, match=why):
        named_set(f"harbor:{folder}")


def test_a_folder_of_folders_is_a_set_with_families_and_levels() -> None:
    found = named_set(f"harbor:{TASKS}")

    assert found.name == "tasks"
    assert [(one.family, one.level, one.language) for one in found.tasks] == [
        ("files", "easy", "python"),
        ("programming", "medium", "python"),
    ]


def test_a_folder_without_tasks_is_no_harbor_set(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["submit", "--harbor", str(tmp_path)])

    assert run.exit_code == 2
    assert "there is no task.toml" in run.stderr


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("1\n", 1.0),
        (" 0.25", 0.25),
        (".5", 0.5),
        ('{"reward": 0.5, "seconds": 3}', 0.5),
        ('{"accuracy": 1}', 1.0),
        ('{"accuracy": 1, "seconds": 3}', None),
        ('{"reward": true}', None),
        ('{"reward": "1"}', None),
        ("nan", None),
        ("", None),
        ("passed", None),
    ],
)
def test_a_reward_is_a_number_or_the_one_of_an_object(text: str, reward: float | None) -> None:
    assert reward_of(text) == reward


def verify(folder: Path) -> tuple[int, str]:
    run = CliRunner().invoke(app, ["verify", "--harbor", str(folder)])
    return run.exit_code, " ".join(run.stdout.split())


def test_solutions_earn_all_and_nothing_and_cheats_earn_nothing() -> None:
    code, told = verify(TASKS)

    assert code == 0, told
    assert "✔ greet sound: the reference earns 1" in told
    assert "✔ mend-sum sound: the reference earns 1" in told
    assert "2 tasks, 0 of them unsound, 0 not tried" in told


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 1 > /logs/verifier/reward.txt", "the workspace as it was earns 1"),
        ("cat /app/secret", "wrote no reward: .*it printed: cat: /app/secret"),
        ("echo 0.5 > /logs/verifier/reward.txt", "the reference earns 0.5, not 1"),
        ("echo good > /logs/verifier/reward.txt", "a reward that is no number"),
    ],
)
def test_tests_that_judge_wrongly_are_unsound(tmp_path: Path, script: str, why: str) -> None:
    folder = tmp_path / "greet"
    shutil.copytree(TASKS / "greet", folder)
    write("tests/test.sh", script)(folder)

    code, told = verify(folder)

    assert code == 1
    assert "✘ greet" in told
    assert re.search(why, told), told


def test_a_task_without_a_solution_has_nothing_that_shows_that_it_can_be_passed(tmp_path: Path) -> None:
    folder = tmp_path / "greet"
    shutil.copytree(TASKS / "greet", folder)
    remove("solution/solve.sh")(folder)

    code, told = verify(folder)

    assert code == 1
    assert "the task has no reference" in told
