"""The command line without a fleet: light, and its errors are sentences with a meaning in the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.files.folder_lock import FolderLock
from tests.acceptance.ratchet_command import REPOSITORY, ForkedRatchet, Ran

HEAVY = ("torch", "transformers", "peft", "pika", "pydantic", "psutil", "prometheus_client", "supervisor", "httpx")
NOWHERE = {"RATCHET_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/"}


@pytest.fixture
def ratchet(tmp_path: Path) -> ForkedRatchet:
    return ForkedRatchet(tmp_path, NOWHERE)


def is_a_sentence(ran: Ran) -> bool:
    return "Traceback" not in ran.err and len(ran.err.strip().splitlines()) == 1


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom services.cli.__main__ import main\nsys.argv = ['ratchet', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('heavy:', *(name for name in {HEAVY} if name in sys.modules))"
    )

    ran = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert ran.stdout.rstrip().endswith("heavy:")
    assert "Exit codes" in ran.stdout


def test_no_command_imports_torch(tmp_path: Path) -> None:
    program = (
        "import importlib, pkgutil, sys\nimport services.cli\n"
        "for found in pkgutil.walk_packages(services.cli.__path__, 'services.cli.'):\n"
        "    importlib.import_module(found.name)\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)


def test_who_does_not_wait_for_the_broker_is_told_so_and_nothing_else(ratchet: ForkedRatchet) -> None:
    ran = ratchet("submit", "x", "--timeout", "0")

    assert ran.code in (3, 4)  # no broker answers, or nothing came in time: whichever is found first
    assert is_a_sentence(ran)


@pytest.mark.parametrize("command", [("submit", "x"), ("dead-letters", "list"), ("up", "--engine", "echo")])
def test_without_a_broker_the_exit_code_is_three(ratchet: ForkedRatchet, command: tuple[str, ...]) -> None:
    extra = ("--scorer", "verifier:exact") if command[0] == "up" else ()

    ran = ratchet(*command, *extra)

    assert ran.code == 3
    assert is_a_sentence(ran)
    assert "127.0.0.1:1" in ran.err


def test_status_without_a_broker_says_so_and_exits_with_three(ratchet: ForkedRatchet) -> None:
    ran = ratchet("status", "--json")

    assert ran.code == 3
    assert ran.json["healthy"] is False


def test_one_look_without_a_broker_exits_with_three(ratchet: ForkedRatchet) -> None:
    ran = ratchet("watch", "--once", "--json", "--interval", "0.1")

    assert ran.code == 3
    assert any("127.0.0.1:1" in trouble for trouble in ran.json["trouble"])


def test_the_tail_of_no_log_says_where_it_looked(ratchet: ForkedRatchet) -> None:
    ran = ratchet("log", "tail")

    assert (ran.code, ran.out) == (0, "")
    assert is_a_sentence(ran)
    assert "agent_interactions.jsonl" in ran.err


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    ran = ForkedRatchet(tmp_path, {"RATCHET_AMQP_URL": "amqp://me:s3cret@127.0.0.1:1/"})("submit", "x")

    assert "me@127.0.0.1:1" in ran.err
    assert "s3cret" not in ran.err + ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit",),
        ("submit", "x", "--file", "y"),
        ("submit", "x", "--priority", "12"),
        ("submit", "x", "--timeout", "-1"),
        ("submit", "x", "--deadline", "-1"),
        ("submit", "--file", "not-there.jsonl"),
        ("dead-letters", "requeue"),
        ("up", "--replicas", "0", "--engine", "echo", "--scorer", "verifier:exact"),
        ("no-such-command",),
    ],
)
def test_what_makes_no_sense_exits_with_two(ratchet: ForkedRatchet, arguments: tuple[str, ...]) -> None:
    ran = ratchet(*arguments)

    assert ran.code == 2
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_an_agent_that_is_not_of_the_fleet_is_not_trained(tmp_path: Path, options: tuple[str, ...]) -> None:
    ran = ForkedRatchet(tmp_path, NOWHERE | {"RATCHET_AGENTS": "small,coder"})("train", "--agent", "nobody", *options)

    assert ran.code == 2
    assert is_a_sentence(ran)
    assert "agent 'nobody' is not of this fleet (small, coder)" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_can_t_be_is_named(tmp_path: Path) -> None:
    ran = ForkedRatchet(tmp_path, {"RATCHET_MAX_MESSAGE_BYTES": "many"})("status")

    assert ran.code == 2
    assert "RATCHET_MAX_MESSAGE_BYTES" in ran.err


def test_an_unknown_task_exits_with_one(ratchet: ForkedRatchet) -> None:
    ran = ratchet("result", "never-seen")

    assert ran.code == 1
    assert is_a_sentence(ran)


def test_a_fleet_is_started_by_one_process_at_a_time(ratchet: ForkedRatchet) -> None:
    lock = FolderLock(ratchet.folder / ".ratchet")
    assert lock.try_acquire()

    ran = ratchet("up", "--engine", "echo", "--scorer", "verifier:exact")

    lock.release()
    assert ran.code == 1
    assert "another process is starting this fleet" in ran.err


def test_down_where_nothing_is_up_is_no_error(ratchet: ForkedRatchet) -> None:
    assert ratchet("down").code == 0


def test_debug_shows_the_traceback(ratchet: ForkedRatchet) -> None:
    assert "Traceback" in ratchet("--debug", "submit", "x").err


def test_the_doctor_answers_as_json(ratchet: ForkedRatchet) -> None:
    ran = ratchet("doctor", "--json")

    assert ran.code == 1
    assert {check["name"]: check["level"] for check in ran.json["checks"]}["broker"] == "fail"


def test_schema_writes_what_is_missing_and_checks_what_is_there(ratchet: ForkedRatchet) -> None:
    assert ratchet("schema", "--check").code == 1
    assert ratchet("schema").code == 0
    assert ratchet("schema", "--check").code == 0
    (ratchet.folder / "schemas" / "generated" / "asyncapi.json").write_text("{}")

    ran = ratchet("schema", "--check")

    assert ran.code == 1
    assert "asyncapi.json" in ran.err


def test_models_that_can_t_be_written_are_a_sentence(ratchet: ForkedRatchet) -> None:
    (ratchet.folder / "models").write_text("a file where the folder should be")

    ran = ratchet("models", "make")

    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert "models can't be written" in ran.err


def test_models_are_listed_without_being_loaded(ratchet: ForkedRatchet) -> None:
    folder = ratchet.folder / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')

    (model,) = ratchet("models", "list", "--json").json

    assert (model["path"], model["architecture"]) == ("models/tiny", "LlamaForCausalLM")


def test_known_models_are_named_with_licence_and_how_to_get_them(ratchet: ForkedRatchet) -> None:
    assert (
        "not here: smollm2 (93 MB to download, Apache-2.0); ratchet models fetch smollm2"
        in ratchet("models", "list").out
    )
    shown = ratchet("models", "show", "smollm2", "--json").json
    assert (shown["licence"], shown["folder"]) == ("Apache-2.0", None)


def test_a_model_nobody_knows_is_a_sentence_with_those_that_are_known(ratchet: ForkedRatchet) -> None:
    ran = ratchet("models", "fetch", "gpt-9")
    assert ran.code == 2
    assert "no known model 'gpt-9': choose smollm2" in ran.err


def test_removing_a_model_that_is_not_there_says_so(ratchet: ForkedRatchet) -> None:
    assert "smollm2 is not in models" in ratchet("models", "remove", "smollm2").out


def test_up_with_a_model_that_is_not_fetched_says_what_to_type(ratchet: ForkedRatchet) -> None:
    ran = ratchet("up", "--model", "smollm2", "--scorer", "verifier:json")
    assert ran.code == 1
    assert "the model smollm2 is not in models/smollm2 yet: `ratchet models fetch smollm2`" in ran.err
