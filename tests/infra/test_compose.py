"""docker-compose.yml and infra/observability.compose.yml: what holds for each container, read from the files.

What `docker compose` itself makes of them: test_compose_profiles.py.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.runner import ISSUE
from ratchet.bus.accounts import accounts
from ratchet.bus.topology import CONSUMER_TIMEOUT_MS, fleet_topology
from ratchet.runtime.container_health import PORTS
from ratchet.runtime.processes import PROCESSES
from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.cli.broker import broker
from services.cli.fleet.credentials import MODEL_SERVER, STAND_INS
from services.manager.settings import ManagerSettings
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

ROOT = Path(__file__).parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
GATE = "settings-file"
SERVICES: dict[str, dict[str, Any]] = {name: one for name, one in COMPOSE["services"].items() if name != GATE}
EYES_FILE: dict[str, Any] = yaml.safe_load((ROOT / "infra/observability.compose.yml").read_text())
EYES: dict[str, dict[str, Any]] = EYES_FILE["services"]
EVERY = SERVICES | EYES
OURS = sorted(name for name, service in SERVICES.items() if str(service["image"]).startswith("ratchet-"))
CHECKS = {"settings", "settings-agent", "settings-scorer"}
ONCE = {*CHECKS, "credentials", "keys", "topology", "models", "installer"}
TOOLS = {"ratchet", "operator", "token"}
STAY = sorted(
    name for name, service in EVERY.items() if name not in ONCE and "tools" not in service.get("profiles", ())
)
ON_THE_BUS = [
    "manager",
    "orchestrator",
    "orchestrator-standby",
    "agent",
    "agent-gpu",
    "runner",
    "scorer",
    "trainer",
    "trainer-gpu",
    "verifier",
]
NETWORKS: dict[str, dict[str, Any]] = COMPOSE["networks"] | EYES_FILE["networks"]
ICC, MASQUERADE = "com.docker.network.bridge.enable_icc", "com.docker.network.bridge.enable_ip_masquerade"
SANDBOXES = [
    "seccomp=infra/sandbox/docker-seccomp.json",
    "apparmor=${SANDBOX_APPARMOR:-unconfined}",
    "systempaths=unconfined",
]
"""For bubblewrap, which needs no capability: docs/sandbox.md."""
RUN_CODE = {"runner", "verifier"}
CONF = (ROOT / "infra/rabbitmq/ratchet.conf").read_text()


def mounts(service: str) -> dict[str, str]:
    """Target → source of the volumes of a container, and whether it may write there."""
    return {
        target: source for source, target, *_ in (mount.split(":") for mount in SERVICES[service].get("volumes", ()))
    }


def variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{(\w+)", text))


def neighbours(name: str) -> set[str]:
    """Whom a container can reach: who shares a network with it on which containers may talk."""
    talking = {
        net for net in EVERY[name].get("networks", ()) if NETWORKS[net].get("driver_opts", {}).get(ICC) != "false"
    }
    return {other for other, service in EVERY.items() if other != name and talking & set(service.get("networks", ()))}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_container_can_do_little(name: str) -> None:
    service = EVERY[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true", *(SANDBOXES if name in RUN_CODE else ())]
    assert "privileged" not in service
    assert service.get("read_only", False) is (name != "rabbitmq")  # whose start script writes its configuration
    assert service.get("init", False) is (name in OURS or name.startswith("vllm"))


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_container_has_limits_and_bounded_logs(name: str) -> None:
    service = EVERY[name]
    limits = service["deploy"]["resources"]["limits"]
    has_gpu = "reservations" in service["deploy"]["resources"]

    assert limits["memory"]
    assert ("cpus" in limits) is not has_gpu
    if name in TOOLS:  # what they print is for who asked: a token, a password
        assert service["logging"] == {"driver": "none"}
    else:
        assert service["logging"]["driver"] == "json-file"
        assert service["logging"]["options"].items() >= {"max-size": "10m", "max-file": "3"}.items()


@pytest.mark.parametrize("name", sorted(EVERY))
def test_no_container_fills_the_machine_with_processes_or_its_memory_with_files(name: str) -> None:
    service = EVERY[name]

    assert service["deploy"]["resources"]["limits"]["pids"] <= 4096
    assert all(re.search(r"\bsize=\d+[mg]\b", folder) for folder in service.get("tmpfs", ()))
    assert ("tmpfs" in service) is (name != "rabbitmq")


def test_a_bad_env_file_ends_up_in_a_build_before_any_container_is_touched() -> None:
    gate = COMPOSE["services"][GATE]
    stage = (
        (ROOT / "services/Dockerfile").read_text().partition(f"AS {gate['build']['target']}\n")[2].partition("FROM")[0]
    )

    assert (gate["pull_policy"], gate["deploy"]["replicas"]) == ("build", 0)
    assert re.search(r"--mount=type=bind,target=/project\b[^#]*settings_check /project/\.env\n", stage)
    assert not [name for name, service in SERVICES.items() if GATE in service.get("depends_on", ())]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_container_is_in_networks_of_its_own_concerns_or_in_none(name: str) -> None:
    service = EVERY[name]

    assert ("networks" in service) is ("network_mode" not in service)
    assert set(service.get("networks", ())) <= set(NETWORKS)
    assert "default" not in service.get("networks", ())


def test_a_network_leads_out_only_where_it_is_meant_to() -> None:
    closed = {name for name, network in NETWORKS.items() if network and network.get("internal")}
    out = {name for name in set(NETWORKS) - closed
           if (NETWORKS[name] or {}).get("driver_opts", {}).get(MASQUERADE) != "false"}  # fmt: skip

    def members(networks: set[str]) -> set[str]:
        return {name for name, service in EVERY.items() if networks & set(service.get("networks", ()))}

    assert out == {"internet", "alerts", "packages"}
    assert members(out) == {
        "agent", "agent-gpu", "scorer", "auditor", "trainer", "trainer-gpu", "vllm", "vllm-judge", "prometheus",
        "installer",
    }  # fmt: skip
    assert members({"published", "grafana"}) == {name for name, service in EVERY.items() if "ports" in service}
    apart = ("published", "grafana", "internet", "packages", "workspaces")
    assert not [name for name in apart if NETWORKS[name]["driver_opts"][ICC] != "false"]


def test_the_gateway_reaches_the_orchestrators_and_nothing_else() -> None:
    assert neighbours("gateway") == {"orchestrator", "orchestrator-standby"}
    assert set(SERVICES["gateway"]["networks"]) == {"api", "published"}


def test_a_model_server_reaches_none_but_who_asks_it() -> None:
    eyes = {"prometheus"}
    on_metrics = {name for name, service in EVERY.items() if "metrics" in service.get("networks", ())}

    assert neighbours("vllm") - on_metrics - eyes == set()
    assert "vllm-judge" not in {name for name in EVERY if "generation" in EVERY[name].get("networks", ())}
    assert {name for name in EVERY if "judging" in EVERY[name].get("networks", ())} == {
        "scorer",
        "auditor",
        "verifier",
        "vllm-judge",
    }
    assert {name for name in EVERY if "generation" in EVERY[name].get("networks", ())} == {"agent", "agent-gpu", "vllm"}
    assert {name for name in EVERY if "programs" in EVERY[name].get("networks", ())} == {"agent", "agent-gpu", "runner"}
    asked = {name for name in EVERY if "verdicts" in EVERY[name].get("networks", ())}
    assert asked == {"runner", "scorer", "verifier"}


def test_no_release_and_no_setting_of_ours_touches_the_broker() -> None:
    broker = SERVICES["rabbitmq"]

    assert "env_file" not in broker
    assert "depends_on" not in broker  # Compose stops, or makes anew, what depends on what it makes anew
    assert variables(str(broker)) == {"COMPOSE_PROJECT_NAME", "RABBITMQ_IMAGE", "RATCHET_AMQP_PORT"}
    users = next(target for target, source in mounts("rabbitmq").items() if source == "credentials-broker")
    assert broker["entrypoint"][2].startswith(f"users={users}/definitions.json; trap exit TERM; until [ -s $$users ]")
    assert broker["entrypoint"][2].endswith("exec docker-entrypoint.sh rabbitmq-server")


@pytest.mark.parametrize(
    "name", sorted(set(OURS) - CHECKS - {"token", "ratchet", "operator", "gateway", "runner-token"})
)
def test_nothing_of_ours_begins_before_the_settings_were_found_usable(name: str) -> None:
    waits: set[str] = set()
    ahead = {name}
    while ahead:
        waits |= ahead
        ahead = {one for service in ahead for one in SERVICES[service].get("depends_on", ())} - waits

    assert "settings" in waits
    assert waits >= CHECKS or name in ONCE


@pytest.mark.parametrize("name", ["settings-agent", "settings-scorer"])
def test_settings_are_also_looked_at_where_the_parts_they_name_are_installed(name: str) -> None:
    service = SERVICES[name.removeprefix("settings-")]

    assert SERVICES[name]["image"] == service["image"]
    assert {key: value for key, value in SERVICES[name].items() if key != "image"} == {
        key: value for key, value in SERVICES["settings"].items() if key not in ("image", "build")
    }


@pytest.mark.parametrize("name", sorted(EVERY))
def test_the_log_shipper_takes_the_fleets_lines_and_no_others(name: str) -> None:
    fleet = "${COMPOSE_PROJECT_NAME:-ratchet}"
    tag = EVERY[name]["logging"].get("options", {}).get("tag")
    pipeline = yaml.safe_load((ROOT / "infra/fluent-bit/fluent-bit.yaml").read_text())["pipeline"]

    assert tag == (f"{fleet}/{{{{.Name}}}}" if name in set(SERVICES) - TOOLS else None)
    assert pipeline["filters"][0] == {"name": "grep", "match": "container", "regex": "$attrs['tag'] ^${FLEET}/"}
    assert EYES["fluent-bit"]["environment"]["FLEET"] == fleet


def test_the_log_shipper_is_told_all_that_its_configuration_asks_for() -> None:
    asked = variables((ROOT / "infra/fluent-bit/fluent-bit.yaml").read_text())

    assert asked == set(EYES["fluent-bit"]["environment"])


def test_only_what_makes_credentials_keys_and_tokens_is_root_and_sees_no_network() -> None:
    roots = [name for name in OURS if SERVICES[name].get("user")]

    assert roots == ["credentials", "keys", "runner-token", "token"]
    assert {SERVICES[name]["network_mode"] for name in roots} == {"none"}
    assert [name for name, service in EVERY.items() if service.get("user") == "0:0"] == [*roots, "fluent-bit"]


def test_few_get_a_capability_back() -> None:
    assert {name: service["cap_add"] for name, service in EVERY.items() if "cap_add" in service} == {
        "credentials": ["CHOWN", "DAC_READ_SEARCH"],
        "runner-token": ["CHOWN"],
        "rabbitmq": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
        "fluent-bit": ["DAC_READ_SEARCH"],
    }


def test_only_the_broker_the_gateway_the_manager_and_grafana_are_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in EVERY.items() if "ports" in service}

    assert published == {
        "rabbitmq": ["127.0.0.1:${RATCHET_AMQP_PORT:-5672}:5672"],
        "gateway": ["127.0.0.1:${RATCHET_API_PORT:-8700}:8700"],
        "manager": ["127.0.0.1:${MANAGER_PORT:-8780}:8780"],
        "grafana": ["127.0.0.1:${RATCHET_GRAFANA_PORT:-3000}:3000"],
    }


@pytest.mark.parametrize("name", ON_THE_BUS)
def test_a_service_checks_tokens_with_keys_it_can_only_read_and_writes_an_audit(name: str) -> None:
    service = SERVICES[name]

    assert "api-keys:/run/api-keys:ro" in service["volumes"]
    assert service["environment"]["RATCHET_API_PUBLIC_KEYS"] == "/run/api-keys"
    assert mounts(name)[service["environment"]["RATCHET_API_AUDIT_DIR"]] == "audit"
    assert service["depends_on"]["keys"] == {"condition": "service_completed_successfully"}


def test_whoever_writes_the_keys_is_a_job_or_a_tool() -> None:
    writers = {name for name in OURS if "api-keys:/keys" in SERVICES[name].get("volumes", ())}

    assert writers == {"keys", "token"}


def test_only_who_decides_about_adapters_has_the_key_that_decisions_are_signed_with() -> None:
    """The trainer may write the adapters, where the ledger is: not the key, and not the logs, where its head is."""
    holders = {name for name in EVERY if any("decision-keys" in one for one in EVERY[name].get("volumes", ()))}

    assert holders == {"orchestrator", "orchestrator-standby", "operator"}
    assert mounts("orchestrator")["/var/lib/ratchet/decision-keys"] == "decision-keys"
    assert "logs:/var/lib/ratchet/logs:ro" in SERVICES["trainer"]["volumes"]


def test_the_gateway_knows_every_orchestrator() -> None:
    port = OrchestratorSettings.model_fields["orchestrator_http_port"].default
    orchestrators = [name for name in SERVICES if name.startswith("orchestrator")]

    assert SERVICES["gateway"]["command"] == [str(port), *(f"{name}:{port}" for name in orchestrators)]


@pytest.mark.parametrize("name", STAY)
def test_what_stays_comes_back_by_itself(name: str) -> None:
    assert EVERY[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", STAY)
def test_what_stays_says_whether_it_is_well(name: str) -> None:
    check = EVERY[name]["healthcheck"]
    jobs = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())["scrape_configs"]
    scraped = {target for job in jobs for source in job.get("static_configs", ()) for target in source["targets"]}

    assert check.get("disable", False) is (name in {"demo", "fluent-bit"})
    assert "test" in check or name in OURS or f"{name}:2020" in scraped


def test_what_runs_code_is_told_what_stands_around_it_and_reaches_nobody_it_need_not() -> None:
    reached = {name: neighbours(name) & set(ON_THE_BUS) - {"trainer", "trainer-gpu"} for name in RUN_CODE}

    assert {SERVICES[name]["environment"]["RATCHET_SANDBOX_ISOLATION"] for name in RUN_CODE} == {"pod"}
    assert {name: set(SERVICES[name]["networks"]) for name in RUN_CODE} == {
        "runner": {"broker", "metrics", "programs", "verdicts", "workspaces"},
        "verifier": {"broker", "metrics", "judging", "verdicts", "workspaces"},
    }
    assert reached["runner"] >= {"agent"}
    for name in RUN_CODE:
        environment, folders = SERVICES[name]["environment"], mounts(name)
        assert environment["RATCHET_SCORER_JUDGE_API_KEY"] == environment["HF_TOKEN"] == ""
        assert environment["RATCHET_WORKSPACE_CACHE"] in folders
        assert "adapters" not in folders.values()
        assert "logs" not in folders.values()


def test_what_fetches_workspaces_reaches_the_world_only_where_it_was_opened() -> None:
    assert {name for name in EVERY if "workspaces" in EVERY[name].get("networks", ())} == RUN_CODE
    assert NETWORKS["workspaces"]["internal"] == "${WORKSPACES_CLOSED:-true}"


def test_what_programs_require_is_installed_apart_and_read_where_they_run() -> None:
    installer, runner = SERVICES["installer"], SERVICES["runner"]
    place = runner["environment"]["RATCHET_PROGRAM_ENVIRONMENTS"]

    assert installer["image"] == runner["image"]
    assert installer["environment"].keys() == {"RATCHET_PROGRAMS", "RATCHET_PROGRAM_ENVIRONMENTS"}
    assert "env_file" not in installer
    assert set(mounts("installer")) == {place, *(at for at in mounts("installer") if "infra/programs" in at)}
    assert neighbours("installer") == set()
    assert f"environments:{place}:ro" in runner["volumes"]
    assert runner["depends_on"]["installer"] == {"condition": "service_completed_successfully"}


def test_a_token_that_can_not_be_issued_is_tried_again_soon_and_then_later(tmp_path: Path) -> None:
    """The scripts of Compose and Kubernetes run here, over stand-ins for their programs: the third try succeeds."""
    told = tmp_path / "told"
    programs = {
        "python": f'echo try >> {told}; [ "$(grep -c try {told})" = 3 ]',
        "sleep": f'echo "$1" >> {told}; [ "$1" != 3600 ] || kill $PPID',
        "chown": ":",
        "mv": ":",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ratchet").symlink_to("python")
    of_compose = SERVICES["runner-token"]["entrypoint"][2].replace("$$", "$")
    for script in (of_compose, ISSUE):
        told.unlink(missing_ok=True)
        here = re.sub(r"(> )\S*(/token/?\S*\.new)", rf"\1{tmp_path}/new", script)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", here], env=path, timeout=60, check=False)

        assert told.read_text().split() == ["try", "5", "try", "10", "try", "3600"]


def test_a_running_broker_takes_users_and_rights_that_came_later(tmp_path: Path) -> None:
    """Its own entrypoint runs here, over stand-ins for its programs. What failed is tried again at any time."""
    told, users = tmp_path / "told", tmp_path / "definitions.json"
    users.write_text("{}")
    newer_by_an_older_clock = f'echo "{{ }}" > {users}; touch -d 2001-01-01 {users}'
    await_second = f'{newer_by_an_older_clock}; until [ "$(grep -c import {told})" = 2 ]; do /bin/sleep 0.02; done'
    programs = {
        "sleep": "exec /bin/sleep 0.02",
        "rabbitmqctl": f'echo "$@" >> {told}; [ "$(grep -c import {told})" = 2 ]',
        "docker-entrypoint.sh": f'echo "$@" >> {told}; {await_second}',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    script = SERVICES["rabbitmq"]["entrypoint"][2].replace("$$", "$").replace("/tmp/", f"{tmp_path}/")
    here = script.replace("/etc/rabbitmq/credentials/definitions.json", str(users))

    with subprocess.Popen(
        ["sh", "-c", here], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, start_new_session=True
    ) as broker:
        try:
            broker.wait(timeout=60)
        finally:
            os.killpg(broker.pid, signal.SIGKILL)

    assert told.read_text().splitlines() == ["rabbitmq-server", *2 * [f"-q import_definitions {users}"]]


def test_a_runners_token_is_issued_where_there_is_no_network() -> None:
    issuer, runner = SERVICES["runner-token"], SERVICES["runner"]

    assert issuer["network_mode"] == "none"
    assert "api-keys:/keys:ro" in issuer["volumes"]
    assert "--role runner " in issuer["entrypoint"][2]
    assert mounts("runner")["/run/runner-token"] == "runner-token"
    assert runner["environment"]["RATCHET_RUNNER_API_TOKEN_FILE"] == "/run/runner-token/token"
    assert runner["depends_on"]["runner-token"] == {"condition": "service_healthy"}
    assert "runner-token:/run/runner-token:ro" in runner["volumes"]


@pytest.mark.parametrize("name", sorted(set(OURS) - ONCE - TOOLS - {"demo", "gateway", "runner-token"}))
def test_a_service_has_time_to_drain(name: str) -> None:
    grace_s = FleetSettings.model_fields["drain_grace_s"].default

    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > grace_s


@pytest.mark.parametrize("name", ON_THE_BUS)
def test_a_service_waits_for_the_queues_and_the_models_and_declares_none(name: str) -> None:
    service = SERVICES[name]

    assert service["environment"]["RATCHET_DECLARE_TOPOLOGY"] == "false"
    assert service["depends_on"]["topology"] == {"condition": "service_completed_successfully"}
    assert service["depends_on"]["models"] == {"condition": "service_completed_successfully"}
    assert SERVICES["topology"]["depends_on"]["rabbitmq"] == {"condition": "service_healthy"}
    assert SERVICES["topology"]["depends_on"]["credentials"] == {"condition": "service_completed_successfully"}


def test_the_job_makes_the_credentials_of_every_user() -> None:
    users = {account.name for account in accounts(fleet_topology(("small",), auditor=True), ("small",), runner=True)}

    assert set(mounts("credentials")) == {
        "/given",
        *(f"/credentials/{name}" for name in {"broker", MODEL_SERVER, *STAND_INS, *users}),
    }


@pytest.mark.parametrize(
    ("service", "user"),
    [
        ("topology", "setup"),
        ("orchestrator", "orchestrator"),
        ("orchestrator-standby", "orchestrator"),
        ("agent", "agent-small"),
        ("agent-gpu", "agent-small"),
        ("runner", "runner"),
        ("scorer", "scorer"),
        ("verifier", "verifier"),
        ("trainer", "trainer"),
        ("trainer-gpu", "trainer"),
        ("manager", "manager"),
        ("demo", "client"),
        ("ratchet", "client"),
        ("operator", "operator"),
        ("vllm", "vllm"),
        ("vllm-judge", "vllm"),
    ],
)
def test_each_container_has_its_own_users_password_and_no_other(service: str, user: str) -> None:
    made = mounts("credentials")
    seen = [source for source in mounts(service).values() if source.startswith("credentials-")]

    assert seen == [made[f"/credentials/{user}"]]
    assert f"{seen[0]}:/run/secrets:ro" in SERVICES[service]["volumes"]


def test_passwords_are_in_no_environment() -> None:
    named = [
        f"{name} {key}"
        for name, service in SERVICES.items()
        for key, value in service.get("environment", {}).items()
        if value not in ("", "${HF_TOKEN:-}")  # taken away; and for vLLM, which reads no .env, passed on
    ]

    assert [entry for entry in named if re.search(r"PASS|SECRET|_TOKEN$|_KEY$|AMQP_URL", entry)] == []


def test_the_commands_of_the_jobs_are_there() -> None:
    commands = {command.callback.__name__ for command in broker.registered_commands if command.callback}

    assert {SERVICES["credentials"]["command"][1], SERVICES["topology"]["command"][1]} <= commands


def test_the_broker_loads_its_users_and_waits_as_long_as_the_queues_do() -> None:
    folder = mounts("rabbitmq")

    assert (
        f"load_definitions = {next(t for t, s in folder.items() if s == 'credentials-broker')}/definitions.json" in CONF
    )
    assert f"consumer_timeout = {CONSUMER_TIMEOUT_MS}" in CONF
    assert (ROOT / "infra/rabbitmq/enabled_plugins").read_text() == "[rabbitmq_management,rabbitmq_prometheus].\n"


def test_every_variable_is_in_the_example_with_a_sentence() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    explained = {
        line[1:].partition("=")[0] for before, line in itertools.pairwise(lines)
        if re.match(r"#[A-Z_]+=", line) and (before.startswith("# ") or re.match(r"#[A-Z_]+=", before))
    }  # fmt: skip
    files = (ROOT / "docker-compose.yml", ROOT / "infra/observability.compose.yml")
    used = {name for file in files for name in variables(file.read_text())} - {"PWD"}  # which every shell sets

    assert used <= explained
    fields = {f"RATCHET_{name.upper()}" for kind in SETTINGS for name in kind.model_fields}
    assert explained - used - {"COMPOSE_PROFILES"} <= fields | {"HF_TOKEN"}


SETTINGS = (
    FleetSettings,
    OrchestratorSettings,
    AgentSettings,
    ManagerSettings,
    RunnerSettings,
    ScorerSettings,
    TrainerSettings,
)


def test_the_defaults_in_the_example_are_the_defaults() -> None:
    text = (ROOT / ".env.example").read_text().partition("# --- GPU")[0]
    compose = (ROOT / "docker-compose.yml").read_text()

    for name, value in re.findall(r"^#([A-Z_]+)=(.*)$", text, re.MULTILINE):
        inline = set(re.findall(rf"\$\{{{name}:?-([^}}]*)\}}", compose))
        fields = {str(kind.model_fields[field].default) for kind in SETTINGS
                  if (field := name.removeprefix("RATCHET_").lower()) in kind.model_fields}  # fmt: skip
        assert (inline or fields) == {value}, name


@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_a_process_is_the_one_that_is_declared(name: str) -> None:
    declared, service = PROCESSES[name], SERVICES[name]
    settings = {
        "orchestrator": OrchestratorSettings,
        "agent": AgentSettings,
        "scorer": ScorerSettings,
        "trainer": TrainerSettings,
        "runner": RunnerSettings,
        "manager": ManagerSettings,
    }[declared.module]

    # it listens on its port, and is probed as it is in a cluster
    assert settings.model_fields[f"{declared.module}_http_port"].default == declared.port
    probe = service["healthcheck"].get("test", [])
    assert ("readyz" if "readyz" in probe else "healthz") == declared.probe
    # it runs its module, and reaches logs and adapters as it may
    assert str(service["image"]).startswith(f"ratchet-{declared.module}:")
    mounted = {mount.split(":")[0]: mount for mount in service["volumes"]}
    for folder in ("logs", "adapters"):
        mount = mounted.get(folder)
        assert (mount and ("read" if mount.endswith(":ro") else "write")) == getattr(declared, folder), folder


def test_prometheus_scrapes_every_service_where_it_listens() -> None:
    jobs = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())["scrape_configs"]
    scraped = {
        (name, source["port"]) for job in jobs for source in job.get("dns_sd_configs", ()) for name in source["names"]
    }

    image_of = {name: str(service["image"]).split(":")[0].split("-")[1] for name, service in SERVICES.items()
                if name in OURS}  # fmt: skip
    listening = {(name, PORTS[image]) for name, image in image_of.items() if image in PORTS and name not in ONCE}
    assert scraped == listening | {("vllm", 8000), ("vllm-judge", 8000)}


@pytest.mark.parametrize(("file", "folder"), [(COMPOSE, ROOT), (EYES_FILE, ROOT / "infra")], ids=["fleet", "eyes"])
def test_what_containers_name_is_there(file: dict[str, Any], folder: Path) -> None:
    services = file["services"].values()
    sources = {mount.partition(":")[0] for service in services for mount in service.get("volumes", ())}
    paths = {source for source in sources if source.startswith("./")}

    assert {name for service in services for name in service.get("depends_on", ())} <= set(file["services"])
    assert {source for source in sources - paths if "$" not in source} <= set(file["volumes"])
    assert [path for path in paths if not (folder / path).exists()] == []


def test_downloaded_models_belong_to_the_fleets_user_from_the_start() -> None:
    dockerfile = (ROOT / "services/Dockerfile").read_text()
    (hub,) = re.findall(r"HF_HOME=(\S+)", dockerfile)
    mounted = {name for name in SERVICES if mounts(name).get(hub) == "hub"}

    assert re.search(rf"install -d -o ratchet -g ratchet (.*\\\n)*.*{hub}", dockerfile)
    assert mounted == {
        "models",
        "agent",
        "agent-gpu",
        "runner",
        "scorer",
        "auditor",
        "trainer",
        "trainer-gpu",
        "vllm",
        "vllm-judge",
    }
    assert {SERVICES[name]["environment"]["HF_HOME"] for name in ("vllm", "vllm-judge")} == {hub}
    assert {SERVICES[name]["user"] for name in ("vllm", "vllm-judge")} == {"10001:10001"}
    assert SERVICES["vllm"]["depends_on"]["models"] == {"condition": "service_completed_successfully"}
