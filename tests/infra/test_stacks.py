"""Both stacks as they would be deployed: no check finds anything, and what was promised is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import SchemaNotFoundError, validate

from infra.checks import findings
from infra.checks.cluster import Cluster
from infra.checks.schema import CUSTOM, KUBERNETES
from infra.render.manifests import Manifest, Manifests, manifests
from infra.render.recording import Recording, record, stack_configuration
from tests.infra.seeded_mistakes import PROGRAMS, with_programs

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["dev", "prod"])
def stack(request: pytest.FixtureRequest) -> Manifests:
    found: Manifests = request.getfixturevalue(request.param)
    return found


def one(found: list[Manifest], kind: str, name: str) -> dict[str, Any]:
    return next(manifest.content for manifest in found if (manifest.kind, manifest.name) == (kind, name))


def names(found: list[Manifest], kind: str) -> set[str]:
    return {manifest.name for manifest in found if manifest.kind == kind}


def test_no_check_finds_anything(stack: Manifests) -> None:
    assert [str(finding) for finding in findings(stack)] == []


def test_kubernetes_validate_itself_accepts_one_of_each_kind(dev: Manifests, prod: Manifests) -> None:
    """The check `valid_alone` uses its schemas, on every manifest, but not its slow reading of them."""
    kinds = {manifest.kind: manifest for manifest in (*dev, *prod)}
    unknown = []
    for manifest in kinds.values():
        try:
            validate(manifest.content, KUBERNETES, strict=True)
        except SchemaNotFoundError:
            unknown.append(manifest)

    assert len(unknown) < len(kinds) / 2
    assert all(manifest.content["apiVersion"].startswith(CUSTOM) for manifest in unknown)


def test_the_command_writes_what_was_recorded(prod: Manifests, tmp_path: Path) -> None:
    (tmp_path / "left-over.yaml").write_text("of: an earlier time")

    run = subprocess.run(
        [sys.executable, "-m", "infra.render", "--stack", "prod", "--out", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    written = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("*.yaml")]
    key = lambda content: (content["kind"], content["metadata"]["name"])  # noqa: E731
    assert sorted(written, key=key) == sorted((manifest.content for manifest in prod), key=key)
    assert "client_amqp_url: [secret]" in run.stdout


def test_a_person_is_told_the_addresses(prod_recording: Recording) -> None:
    assert prod_recording.outputs["amqp"] == "amqp://rabbitmq.ratchet.svc.cluster.local:5672/"
    assert prod_recording.outputs["judge"] == "http://judge.ratchet.svc.cluster.local:8000/v1"
    assert "port-forward service/rabbitmq 15672" in prod_recording.outputs["management"]
    assert prod_recording.outputs["client_amqp_url"] == "[secret]"


def test_with_keda_queues_scale_and_a_gpu_is_held_only_while_one_trains(prod: Manifests) -> None:
    assert names(prod, "ScaledObject") == {"agent-small", "scorer"}
    assert names(prod, "HorizontalPodAutoscaler") == set()
    assert "trainer" not in names(prod, "Deployment")
    job = one(prod, "ScaledJob", "trainer")["spec"]
    assert job["minReplicaCount"] == 0
    assert job["jobTargetRef"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert one(prod, "ScaledObject", "scorer")["spec"]["minReplicaCount"] == 0


def test_alerts_link_to_the_runbook_and_know_model_servers_by_their_job(prod: Manifests) -> None:
    rules = [rule for group in one(prod, "PrometheusRule", "alerts")["spec"]["groups"] for rule in group["rules"]]
    links = {rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule}
    endpoints = one(prod, "ServiceMonitor", "agent-small")["spec"]["endpoints"]
    jobs = {one["port"]: [label["replacement"] for label in one["relabelings"]] for one in endpoints}

    assert "https://docs.example.com/ratchet/operations/#ratchetnoleader" in links
    assert all(link.startswith("https://docs.example.com/") for link in links)
    assert jobs == {"http": ["ratchet"], "vllm": ["ratchet", "vllm"]}


def test_a_backup_is_made_each_night_without_a_network_and_the_newest_are_kept() -> None:
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"]["backups"] = {"claim": "of-the-site", "keep": 3, "keySecret": "backup-key"}

    found = manifests(record("prod", configuration))

    spec = one(found, "CronJob", "backup")["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    script = pod["containers"][0]["command"][2]
    assert [str(finding) for finding in findings(found)] == []
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("17 2 * * *", "Forbid")
    assert "ratchet backup --key-file /run/backup-key/key /backups/fleet-$now.ratchet" in script
    assert "tail -n +4" in script
    assert not one(found, "NetworkPolicy", "backup")["spec"].get("egress")
    assert {"name": "site-of-the-site", "persistentVolumeClaim": {"claimName": "of-the-site", "readOnly": False}} in (
        pod["volumes"]
    )


def test_a_quota_that_is_too_small_for_the_fleet_is_refused() -> None:
    configuration = stack_configuration("prod")
    quota = {"cpu": "200", "memory": "1Ti", "gpus": 4, "pods": 90}  # an agent, two judges of two, and a training
    configuration["ratchet:fleet"]["scheduling"] = {"quota": quota}

    found = findings(manifests(record("prod", configuration)))

    assert [finding.check for finding in found] == ["the_quota_lets_the_fleet_run"]
    assert "the fleet at its fewest needs 6" in found[0].sentence


@pytest.fixture(scope="module")
def several_machines() -> Manifests:
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"]["trainer"] |= {"machines": 2}
    configuration["ratchet:fleet"]["judge"] |= {"machines": 3, "serverArgs": ["--max-model-len", "8192"]}
    return manifests(record("prod", configuration))


def test_a_training_over_several_pods_is_a_numbered_job_that_ends_with_its_first_pod(
    several_machines: Manifests,
) -> None:
    job = one(several_machines, "ScaledJob", "trainer")["spec"]["jobTargetRef"]
    environment = {one["name"]: one for one in job["template"]["spec"]["containers"][0]["env"]}

    assert [str(finding) for finding in findings(several_machines)] == []
    assert (job["completionMode"], job["parallelism"], job["completions"]) == ("Indexed", 2, 2)
    assert job["successPolicy"]["rules"] == [{"succeededIndexes": "0"}]
    assert environment["RATCHET_TRAINER_MAIN_ADDRESS"]["value"] == "$(JOB_NAME)-0.trainer-nodes:29500"
    assert one(several_machines, "Service", "trainer-nodes")["spec"]["publishNotReadyAddresses"]


def test_a_judge_over_several_pods_is_asked_at_the_first_pod_of_each_group(several_machines: Manifests) -> None:
    judge = one(several_machines, "LeaderWorkerSet", "judge")["spec"]["leaderWorkerTemplate"]
    leader, worker = (judge[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
    asked = one(several_machines, "Service", "judge")["spec"]["selector"]

    assert judge["size"] == 3
    assert asked.items() <= judge["leaderTemplate"]["metadata"]["labels"].items()
    assert not asked.items() <= judge["workerTemplate"]["metadata"]["labels"].items()
    assert worker["args"][-3:] == ["--max-model-len", "8192", "--headless"]
    assert "--headless" not in leader["args"]
    assert leader["readinessProbe"] and [port["name"] for port in leader["ports"]] == ["vllm"]
    assert "readinessProbe" not in worker and not worker["ports"]


def test_without_keda_cpu_scales_and_the_trainer_stays(dev: Manifests) -> None:
    assert names(dev, "HorizontalPodAutoscaler") == {"agent-small", "scorer"}
    assert names(dev, "ScaledObject") | names(dev, "ScaledJob") | names(dev, "TriggerAuthentication") == set()
    assert "trainer" in names(dev, "Deployment")
    assert "RATCHET_TRAINER_ONCE" not in one(dev, "ConfigMap", "trainer")["data"]


def test_an_agent_with_vllm_has_a_server_of_its_own_that_outlives_it(prod: Manifests) -> None:
    pod = one(prod, "Deployment", "agent-small")["spec"]["template"]["spec"]

    (server,) = pod["initContainers"]

    assert server["restartPolicy"] == "Always"
    assert "--enable-lora" in server["args"]
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert mounts["adapters"] == one(prod, "ConfigMap", "agent-small")["data"]["RATCHET_ADAPTERS_DIR"]


def test_three_brokers_find_each_other_and_one_alone_does_not_look(prod: Manifests, dev: Manifests) -> None:
    assert "k8s" in one(prod, "ConfigMap", "rabbitmq-files")["data"]["20-fleet.conf"]
    assert "cluster_formation" not in one(dev, "ConfigMap", "rabbitmq-files")["data"]["20-fleet.conf"]
    assert one(prod, "StatefulSet", "rabbitmq")["spec"]["replicas"] == 3


def test_who_only_reads_a_claim_cannot_write_it(prod: Manifests) -> None:
    def writable(pod: Mapping[str, Any]) -> set[str]:
        mounts = pod["containers"][0]["volumeMounts"]
        return {mount["name"] for mount in mounts if not mount.get("readOnly")} - {"temporary", "index"}

    pods = {
        "orchestrator": one(prod, "Deployment", "orchestrator")["spec"]["template"]["spec"],
        "agent": one(prod, "Deployment", "agent-small")["spec"]["template"]["spec"],
        "trainer": one(prod, "ScaledJob", "trainer")["spec"]["jobTargetRef"]["template"]["spec"],
    }

    assert {name: writable(pod) for name, pod in pods.items()} == {
        "orchestrator": {"logs", "adapters", "audit", "decision-keys"},
        "agent": {"models", "audit"},
        "trainer": {"adapters", "models", "audit"},
    }


def test_the_index_lies_on_the_node_of_its_orchestrator(prod: Manifests) -> None:
    """SQLite's write-ahead log works on no network file system, as the shared claims may be."""
    pod = one(prod, "Deployment", "orchestrator")["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "index"]
    (at,) = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "index"]

    assert volume["emptyDir"]["sizeLimit"] == "10Gi"
    assert {"name": "RATCHET_INDEX_DIR", "value": at} in pod["containers"][0].get("env", []) or at == "/index"


def test_a_change_of_configuration_replaces_the_pods_and_nothing_else_does(dev: Manifests) -> None:
    configuration = stack_configuration("dev")
    configuration["ratchet:fleet"]["scorer"]["strategy"] = "verifier:exact"

    changed = manifests(record("dev", configuration))

    def hashes(found: list[Manifest]) -> dict[str, str]:
        return {
            manifest.name: manifest.content["spec"]["template"]["metadata"]["annotations"]["ratchet/configuration"]
            for manifest in found
            if manifest.kind in ("Deployment", "StatefulSet")
        }

    assert {name for name, value in hashes(changed).items() if hashes(dev)[name] != value} == {"scorer"}


def test_the_api_is_reached_through_the_gateway_alone(prod: Manifests, dev: Manifests) -> None:
    gateway = one(prod, "Deployment", "gateway")["spec"]["template"]["spec"]["containers"][0]
    port = one(prod, "Service", "orchestrator-nodes")["spec"]["ports"][0]["port"]
    sources = [
        peer
        for rule in one(prod, "NetworkPolicy", "orchestrator")["spec"]["ingress"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]

    assert gateway["args"] == ["8700", f"orchestrator-nodes:{port}"]
    assert one(prod, "Service", "orchestrator-nodes")["spec"]["clusterIP"] == "None"
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in sources] == ["gateway"]
    assert one(prod, "ConfigMap", "orchestrator")["data"]["RATCHET_API_HOSTS"] == "ratchet.example.com"
    assert names(dev, "Ingress") == set()
    assert names(dev, "NetworkPolicy") >= {"gateway"}


def test_a_person_types_commands_in_a_pod_that_reaches_the_broker_and_nothing_else(prod: Manifests) -> None:
    spec = one(prod, "Deployment", "operator")["spec"]["template"]["spec"]
    (shell,) = spec["containers"]
    rules = one(prod, "NetworkPolicy", "operator")["spec"]

    assert {mount["name"]: mount.get("readOnly", False) for mount in shell["volumeMounts"]} == {
        "logs": False, "adapters": False, "decision-keys": False, "audit": True,
        "secret-settings": True, "temporary": False,
    }  # fmt: skip
    assert set(one(prod, "Secret", "operator")["stringData"]) == {"RATCHET_AMQP_URL"}
    assert not rules.get("ingress")
    assert [port["port"] for rule in rules["egress"] for port in rule["ports"]] == [5672, 53, 53]


def test_a_password_is_a_file_of_whom_it_belongs_to_and_in_no_environment(stack: Manifests) -> None:
    ours = [pods for pods in Cluster(stack).pods if pods.owner.name != "rabbitmq"]
    variables = [
        (str(pods), source)
        for pods in ours
        for box in pods.containers
        for source in box.get("envFrom", [])
        if "secretRef" in source
    ]
    readers = {
        pods.owner.name: [
            box["name"] for box in pods.containers for m in box["volumeMounts"] if m["mountPath"] == "/run/secrets"
        ]
        for pods in ours
    }

    assert variables == []
    assert {name for name, boxes in readers.items() if boxes} == names(stack, "Secret") & set(readers)
    assert readers["agent-small"] == ["agent"]  # and not the vLLM beside it
    assert readers["gateway"] == []


def test_a_token_of_the_hub_reaches_those_who_download_and_nobody_else() -> None:
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"]["hubTokenSecret"] = "hugging-face"

    found = manifests(record("prod", configuration))

    told = {
        f"{pods.owner.name} {box['name']}"
        for pods in Cluster(found).pods
        for box in pods.containers
        if any(mount["name"] == "site-hugging-face" for mount in box["volumeMounts"])
    }
    assert [str(finding) for finding in findings(found)] == []
    assert told == {"agent-small agent", "agent-small vllm", "judge vllm", "trainer trainer"}


def test_the_gateway_reaches_the_orchestrators_and_names_and_nothing_else(stack: Manifests) -> None:
    egress = one(stack, "NetworkPolicy", "gateway")["spec"]["egress"]

    reached = [(peer, port["port"]) for rule in egress for peer in rule["to"] for port in rule["ports"]]
    assert [(peer.get("podSelector", {}).get("matchLabels"), port) for peer, port in reached] == [
        ({"app.kubernetes.io/component": "orchestrator"}, 8700), (None, 53), (None, 53),
    ]  # fmt: skip


def test_every_scratch_folder_has_a_size(stack: Manifests) -> None:
    folders = [
        volume["emptyDir"]
        for pods in Cluster(stack).pods
        for volume in pods.spec.get("volumes", [])
        if "emptyDir" in volume
    ]

    assert folders
    assert [folder for folder in folders if not folder.get("sizeLimit")] == []


def test_a_config_map_for_each_dashboard_and_for_no_other_file(prod: Manifests) -> None:
    dashboards = {f"dashboard-{path.stem}" for path in (ROOT / "infra" / "grafana" / "dashboards").iterdir()}

    assert {name for name in names(prod, "ConfigMap") if name.startswith("dashboard-")} == dashboards
    assert dashboards


def test_the_logs_leave_a_fifth_of_their_claim(dev: Manifests) -> None:
    assert one(dev, "PersistentVolumeClaim", "logs")["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert one(dev, "ConfigMap", "orchestrator")["data"]["RATCHET_LOG_KEEP_GB"] == f"{0.8 * 2 * 2**30 / 1e9:g}"


def test_a_second_agent_is_one_more_entry() -> None:
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"]["agents"].append({"id": "coder", "engine": "echo", "maxReplicas": 3})

    found = manifests(record("prod", configuration))

    assert [str(finding) for finding in findings(found)] == []
    triggers = one(found, "ScaledObject", "agent-coder")["spec"]["triggers"]
    assert [trigger["metadata"]["queueName"] for trigger in triggers] == ["work.coder", "work.coder.high"]
    assert one(found, "ConfigMap", "orchestrator")["data"]["RATCHET_AGENTS"] == "small,coder"


def test_programs_run_where_nothing_is_to_be_had(programs: Manifests) -> None:
    pod = one(programs, "Deployment", "runner")["spec"]["template"]["spec"]
    (box,) = pod["containers"]
    told = one(programs, "ConfigMap", "runner")["data"]
    egress = one(programs, "NetworkPolicy", "runner")["spec"]["egress"]
    reached = {
        (*peer.get("podSelector", {}).get("matchLabels", {"": "elsewhere"}).values(), port["port"])
        for rule in egress
        for peer in rule["to"]
        for port in rule["ports"]
    }

    assert [str(finding) for finding in findings(programs)] == []
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {
        "type": "Localhost", "localhostProfile": "profiles/ratchet-sandbox.json",
    }  # fmt: skip
    assert {mount["name"]: mount.get("readOnly", False) for mount in box["volumeMounts"]} == {
        "models": True, "audit": False, "files": True, "rollouts": False, "runner-token": True, "workspaces": False,
        "site-agents-of-the-site": True, "secret-files": True, "secret-settings": True, "temporary": False,
        "environments": True,
    }  # fmt: skip
    assert set(one(programs, "Secret", "runner")["stringData"]) == {"RATCHET_AMQP_URL"}
    assert reached == {("broker", 5672), ("agent", 8710), ("scorer", 8750), ("elsewhere", 53), ("elsewhere", 443)}
    assert told["RATCHET_RUNNER_AGENTS"] == "small=http://agent-small:8710"
    assert told["RATCHET_RUNNER_SCORER_URL"] == "http://scorer:8750"
    assert pod["terminationGracePeriodSeconds"] > float(told["RATCHET_DRAIN_GRACE_S"]) == 300


def test_what_programs_require_is_installed_by_a_job_with_the_world_and_no_secret(programs: Manifests) -> None:
    job = one(programs, "Job", "programs")["spec"]
    (box,) = job["template"]["spec"]["containers"]
    told, of_runner = (one(programs, "ConfigMap", name)["data"] for name in ("programs", "runner"))
    closed = with_programs()
    closed["ratchet:fleet"]["runner"] |= {"packageAccess": False, "programs": PROGRAMS + "# changed"}
    other = manifests(record("prod", closed))

    assert box["image"] == one(programs, "Deployment", "runner")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {mount["name"]: mount.get("readOnly", False) for mount in box["volumeMounts"]} == {
        "files": True, "environments": False, "site-agents-of-the-site": True, "temporary": False,
    }  # fmt: skip
    ports = [
        port["port"] for rule in one(programs, "NetworkPolicy", "programs")["spec"]["egress"] for port in rule["ports"]
    ]
    assert ports == [53, 53, 443]
    assert not one(other, "NetworkPolicy", "programs")["spec"].get("egress")
    assert told["RATCHET_PROGRAM_ENVIRONMENTS"] == of_runner["RATCHET_PROGRAM_ENVIRONMENTS"]
    assert (
        told["RATCHET_PROGRAM_ENVIRONMENTS"]
        != one(other, "ConfigMap", "programs")["data"]["RATCHET_PROGRAM_ENVIRONMENTS"]
    )
    assert [str(finding) for finding in findings(other)] == []


def test_runners_follow_the_tasks_of_the_agents_they_answer_for_and_those_take_none(programs: Manifests) -> None:
    scaled = one(programs, "ScaledObject", "runner")["spec"]
    of_agent = one(programs, "ConfigMap", "agent-small")["data"]

    assert [trigger["metadata"]["queueName"] for trigger in scaled["triggers"]] == ["work.small", "work.small.high"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (1, 4)
    assert one(programs, "PodDisruptionBudget", "runner")["spec"]["maxUnavailable"] == 1
    assert of_agent["RATCHET_PROGRAMS"] == one(programs, "ConfigMap", "runner")["data"]["RATCHET_PROGRAMS"]
    assert one(programs, "ConfigMap", "orchestrator")["data"]["RATCHET_PROGRAMS"] == of_agent["RATCHET_PROGRAMS"]
    assert one(programs, "ConfigMap", "agent-small-files")["data"] == one(programs, "ConfigMap", "runner-files")["data"]


def test_on_gvisor_the_pod_has_its_runtime_class_and_the_runtimes_own_profile() -> None:
    configuration = with_programs()
    configuration["ratchet:fleet"]["sandbox"] = {"isolation": "gvisor", "runtimeClass": "runsc"}

    found = manifests(record("prod", configuration))

    assert [str(finding) for finding in findings(found)] == []
    for name in ("runner", "scorer"):
        pod = one(found, "Deployment", name)["spec"]["template"]["spec"]
        assert pod["runtimeClassName"] == "runsc"
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one(found, "ConfigMap", name)["data"]["RATCHET_SANDBOX_ISOLATION"] == "gvisor"
    assert "runtimeClassName" not in one(found, "Deployment", "agent-small")["spec"]["template"]["spec"]


def test_a_runners_token_is_issued_where_nobody_can_ask_for_another(programs: Manifests) -> None:
    pod = one(programs, "Deployment", "runner-token")["spec"]["template"]["spec"]
    rules = one(programs, "NetworkPolicy", "runner-token")["spec"]
    holders = {
        pods.owner.name
        for pods in Cluster(programs).pods
        for volume in pods.spec["volumes"]
        if "signing-key.json"
        in (Cluster(programs).keys("Secret", volume.get("secret", {}).get("secretName", "")) or ())
    }

    assert holders == {"runner-token"}
    assert (rules.get("ingress") or [], rules.get("egress") or []) == ([], [])
    assert "--role runner" in pod["containers"][0]["command"][2]


def test_an_external_scorer_takes_the_scorers_place_and_its_broker_user(prod_recording: Recording) -> None:
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"]["externalScorer"] = True

    recording = record("prod", configuration)
    found = manifests(recording)

    users = json.loads(one(found, "Secret", "rabbitmq-files")["stringData"]["definitions.json"])["permissions"]
    (reads,) = [user["read"] for user in users if user["user"] == "orchestrator"]
    assert [str(finding) for finding in findings(found)] == []
    assert "scorer" not in names(found, "Deployment")
    assert re.search(reads, "responses.kept")
    assert {name for name in names(found, "ConfigMap")
            if one(found, "ConfigMap", name).get("data", {}).get("RATCHET_EXTERNAL_SCORER") == "true"} >= {
        "orchestrator", "trainer", "queues", "agent-small",
    }  # fmt: skip
    assert recording.outputs["scorer_amqp_url"] == "[secret]"
    assert "scorer_amqp_url" not in prod_recording.outputs


def test_an_auditor_is_a_second_scorer_on_queues_of_its_own() -> None:
    configuration = stack_configuration("dev")
    configuration["ratchet:fleet"]["auditor"] = {"strategy": "verifier:exact"}

    found = manifests(record("dev", configuration))

    assert [str(finding) for finding in findings(found)] == []
    assert one(found, "ConfigMap", "auditor")["data"]["RATCHET_SCORER_AUDITS"] == "true"
    assert {name for name in names(found, "ConfigMap")
            if one(found, "ConfigMap", name).get("data", {}).get("RATCHET_AUDITOR") == "verifier:exact"} >= {
        "auditor", "orchestrator", "scorer", "trainer", "queues", "agent-small",
    }  # fmt: skip


@pytest.mark.parametrize("who", ["scorer", "auditor"])
def test_a_judge_outside_the_cluster_is_reached_at_its_port_with_the_sites_key(who: str) -> None:
    configuration = stack_configuration("prod")
    fleet = configuration["ratchet:fleet"]
    outside = {"judgeUrl": "https://judge.example.com:8443/v1", "judgeModel": "big", "judgeKeySecret": "judge-key"}
    if who == "scorer":
        del fleet["judge"]
    fleet[who] = {**fleet["scorer"], "minReplicas": 1, **outside}

    found = manifests(record("prod", configuration))

    told = f"RATCHET_{who.upper()}_JUDGE"
    box = one(found, "Deployment", who)["spec"]["template"]["spec"]["containers"][0]
    (key,) = [variable["valueFrom"] for variable in box["env"] if variable["name"] == f"{told}_API_KEY"]
    egress = one(found, "NetworkPolicy", who)["spec"]["egress"]
    ports = [port["port"] for rule in egress if "ipBlock" in rule["to"][0] for port in rule["ports"]]
    assert [str(finding) for finding in findings(found)] == []
    assert key == {"secretKeyRef": {"name": "judge-key", "key": "api_key"}}
    assert one(found, "ConfigMap", who)["data"][f"{told}_URL"] == "https://judge.example.com:8443/v1"
    assert ports == [8443]
