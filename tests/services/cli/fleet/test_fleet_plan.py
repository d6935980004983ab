"""Processes, ports and settings of a fleet on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.service.errors import SettingsError
from services.cli.fleet.options import SMALL_MAX_TOKENS, FleetOptions
from services.cli.fleet.plan import FleetPlan, plan_fleet
from services.cli.terminal import UsageError
from tests.programs import REPOSITORY
from workbench.sandbox.bubblewrap import missing_programs

URL = "amqp://user:secret@broker.example:5672/"


def plan(amqp_url: str | None = URL, **options: object) -> FleetPlan:
    return plan_fleet(FleetOptions(**options), Path("/fleet/rabbitmq"), amqp_url, 30.0)  # type: ignore[arg-type]


def test_each_service_has_its_port_and_agents_are_counted_from_ten_on() -> None:
    planned = plan(agents=("small", "coder"), replicas=2, port_base=9000)

    assert planned.ports == {
        9000: "orchestrator",
        9010: "agent-small-1",
        9011: "agent-small-2",
        9012: "agent-coder-1",
        9013: "agent-coder-2",
        9050: "scorer",
        9060: "trainer",
    }


def test_there_is_a_trainer_unless_it_is_left_out_or_has_nothing_to_train() -> None:
    def names(**options: object) -> list[str]:
        return [program.name for program in plan(**options).services]

    assert names() == ["orchestrator", "agent-small", "scorer", "trainer"]
    assert names(trainer=False) == names(engine="echo") == ["orchestrator", "agent-small", "scorer"]


def test_nothing_is_started_or_made_for_programs_of_somebody_else_s() -> None:
    external = FleetOptions(agents=(), external_agents=("node",), no_scorer=True)
    planned = plan_fleet(external, Path("/fleet/rabbitmq"), URL, 30.0)

    assert [program.name for program in planned.services] == ["orchestrator"]
    assert planned.environment["RATCHET_AGENTS"] == "node"
    assert planned.environment["RATCHET_EXTERNAL_SCORER"] == "true"
    assert external.external == ("agent node", "scorer")
    assert not external.models_to_make
    beside = plan(external_agents=("node",))
    assert [program.name for program in beside.services] == ["orchestrator", "agent-small", "scorer", "trainer"]
    assert beside.environment["RATCHET_AGENTS"] == "small,node"
    assert beside.environment["RATCHET_EXTERNAL_SCORER"] == "false"


def test_an_auditor_is_a_second_scorer_with_a_port_of_its_own() -> None:
    planned = plan(auditor="verifier:exact", port_base=9000)
    (auditor,) = [program for program in planned.services if program.name == "auditor"]

    assert planned.ports[9051] == "auditor"
    assert planned.environment["RATCHET_AUDITOR"] == "verifier:exact"
    assert auditor.environment["RATCHET_SCORER_AUDITS"] == "true"
    assert auditor.command[-1] == "services.scorer"


def test_a_named_broker_is_used_and_none_started() -> None:
    planned = plan(URL)

    assert planned.broker_program is None
    assert planned.environment["RATCHET_AMQP_URL"] == URL


def test_without_one_a_private_broker_is_planned_with_its_three_ports() -> None:
    planned = plan(None, amqp_port=6000)

    assert planned.amqp_url == "amqp://guest:guest@127.0.0.1:6000/%2F"
    assert {6000, 16000, 26000} <= set(planned.ports)


def test_the_password_of_a_broker_is_in_no_program_s_own_environment() -> None:
    assert all("secret" not in str(program) for program in plan(URL).services)


def test_options_reach_the_services_as_settings() -> None:
    environment = plan(engine="echo", scorer="verifier:exact", model="m", judge_model="j").environment

    assert environment["RATCHET_AGENT_ENGINE"] == "echo"
    assert environment["RATCHET_SCORER"] == "verifier:exact"
    assert (environment["RATCHET_AGENT_MODEL"], environment["RATCHET_SCORER_LIKELIHOOD_MODEL"]) == ("m", "j")


def test_a_service_gets_more_time_to_stop_than_its_own_grace() -> None:
    planned = plan()

    assert all(program.stop_wait_s > 30 for program in planned.services)
    assert planned.stop_timeout_s > max(program.stop_wait_s for program in planned.services)


@pytest.mark.parametrize(
    "options",
    [{"replicas": 0}, {"agents": ()}, {"replicas": 41}, {"port_base": 80}, {"port_base": 65530}, {"amqp_port": 60000}],
)
def test_options_that_can_t_be_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        plan(None, **options)


def test_only_the_default_models_are_made_and_only_where_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert FleetOptions().models_to_make
    assert FleetOptions(engine="echo").models_to_make, "the scorer's is missing"
    assert not FleetOptions(engine="echo", scorer="verifier:exact").models_to_make
    assert not FleetOptions(model="org/model", judge_model="org/bigger").models_to_make


def test_the_small_model_writes_little_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(**options: object) -> str | None:
        return plan(**options).environment.get("RATCHET_MAX_TOKENS")

    assert tokens() == str(SMALL_MAX_TOKENS)
    assert (tokens(model="smollm2"), tokens(engine="echo"), tokens(agents=(), external_agents=("node",))) == (None,) * 3
    assert f"RATCHET_MAX_TOKENS:-{SMALL_MAX_TOKENS}}}" in (REPOSITORY / "docker-compose.yml").read_text()

    monkeypatch.setenv("RATCHET_MAX_TOKENS", "64")

    assert tokens() is None


def test_programs_have_a_runner_that_is_told_where_each_replica_of_an_agent_is() -> None:
    file = REPOSITORY / "examples/own-program/programs.toml"
    planned = plan(agents=("small", "coder"), replicas=2, port_base=9000, programs=str(file))
    (runner,) = [program for program in planned.services if program.name == "runner"]

    assert (runner.http_port, runner.command[-1]) == (9055, "services.runner")
    assert runner.environment["RATCHET_RUNNER_AGENTS"] == (
        "small=http://127.0.0.1:9010 http://127.0.0.1:9011,coder=http://127.0.0.1:9012 http://127.0.0.1:9013"
    )
    assert planned.environment["RATCHET_PROGRAMS"] == str(file)
    with pytest.raises(UsageError, match="agent small has programs, but no process here"):
        plan(agents=(), external_agents=("small",), programs=str(file))
    with pytest.raises(SettingsError, match="can't be read"):
        plan(programs="/no/such.toml")


def test_a_file_of_profiles_that_can_not_be_used_ends_the_start_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, programs = tmp_path / "profiles.toml", str(REPOSITORY / "examples/own-program/programs.toml")
    file.write_text('[profiles.mixed.roles.reviewer]\nprovider = "openai"\nmodel = "big-1"\nkey = "THE_KEY"\n')
    monkeypatch.setenv("RATCHET_PROFILES", str(file))
    with pytest.raises(SettingsError, match=r"profiles.mixed.roles.reviewer: the variable THE_KEY"):
        plan(programs=programs)

    monkeypatch.setenv("THE_KEY", "sk-1")
    plan(programs=programs)
    file.write_text(file.read_text() + "[profiles.mixed.daily]\ncost = 5\n")
    with pytest.raises(SettingsError, match=r"daily.cost can't be held: .* has no 'big-1', which plays reviewer"):
        plan(programs=programs)


def test_two_agents_with_vllm_have_a_server_each_and_share_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    planned = plan(agents=("small", "coder"), engine="vllm", model="some/model", own_vllm=True, vllm_args="--seed 1")
    programs = {program.name: program for program in planned.services}
    server, agent = programs["vllm-coder"], programs["agent-coder"]

    assert (server.http_port, agent.environment["RATCHET_AGENT_VLLM_URL"]) == (8811, "http://127.0.0.1:8811")
    assert server.command[1:4] == ("serve", "some/model", "--enable-lora")
    assert server.command[server.command.index("--gpu-memory-utilization") + 1] == "0.45"
    assert server.command[-2:] == ("--seed", "1")
    assert agent.environment["RATCHET_AGENT_TOKENIZER"] == "some/model"
    assert programs["trainer"].environment["RATCHET_TRAINER_MODEL"] == "some/model"
    assert "RATCHET_AMQP_URL" not in server.environment


def test_a_manager_is_named_to_every_service_and_has_a_runner_where_there_are_sandboxes() -> None:
    planned = plan(manager=True, port_base=9000)
    runners = [program for program in planned.services if program.name == "runner"]

    assert planned.ports[9065] == "manager"
    assert planned.environment["RATCHET_MANAGER_URL"] == "http://127.0.0.1:9065"
    assert len(runners) == (0 if missing_programs() else 1)
    assert "RATCHET_MANAGER_URL" not in plan().environment


def test_a_bigger_model_is_an_agent_of_its_own_that_answers_in_place_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RATCHET_CASCADE", raising=False)
    planned = plan(agents=("small", "coder"), model="models/small", big="models/judge", port_base=9000)
    settings = {one.name: one.environment for one in planned.services}

    assert planned.environment["RATCHET_AGENTS"] == "small,coder,big"
    assert planned.environment["RATCHET_CASCADE"] == "small=big"
    assert settings["agent-big"]["RATCHET_AGENT_MODEL"] == "models/judge"
    assert "RATCHET_AGENT_MODEL" not in settings["agent-small"]
    assert settings["trainer"]["RATCHET_TRAINER_MODEL"] == "small=models/small,coder=models/small"

    behind_a_url = {one.name: one.environment for one in plan(big="https://models.example/v1").services}["agent-big"]
    assert behind_a_url["RATCHET_AGENT_ENGINE"] == "openai"
    assert behind_a_url["RATCHET_BIG_MODEL"] == "https://models.example/v1"
