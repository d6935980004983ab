"""Mistakes people make in manifests, made on purpose in good ones, and which checks find each.

`python -m tests.infra.seeded_mistakes` prints the table. Its last line stands in docs/infra.md; a test compares them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.checks import findings
from infra.render.manifests import Manifests, manifests
from infra.render.recording import record, stack_configuration

PAGE = Path(__file__).parents[2] / "docs" / "infra.md"
VALID_ALONE = "valid_alone"
"""The check each manifest goes through by itself: what a schema validator finds."""


class Stack:
    """A copy of a stack's manifests, to make mistakes in."""

    def __init__(self, found: Manifests) -> None:
        self.settings = found.settings
        self.manifests = [replace(one, content=copy.deepcopy(one.content)) for one in found]
        self.random = [replace(one, properties=dict(one.properties)) for one in found.random]

    def with_mistake(self) -> Manifests:
        return Manifests(self.manifests, self.settings, self.random)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return next(one.content for one in self.manifests if (one.kind, one.name) == (kind, name))

    def spec(self, kind: str, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = self.get(kind, name)["spec"]
        return spec

    def pod(self, kind: str, name: str) -> dict[str, Any]:
        spec = self.spec(kind, name)
        pod: dict[str, Any] = spec.get("jobTargetRef", spec)["template"]["spec"]
        return pod

    def box(self, kind: str, name: str) -> dict[str, Any]:
        box: dict[str, Any] = self.pod(kind, name)["containers"][0]
        return box

    def remove(self, kind: str, name: str) -> None:
        self.manifests = [one for one in self.manifests if (one.kind, one.name) != (kind, name)]

    def copy(self, kind: str, name: str, /, **changes: Any) -> dict[str, Any]:
        """A second object like that one, under the name `name` unless changed."""
        original = next(one for one in self.manifests if (one.kind, one.name) == (kind, name))
        twin = replace(original, content=copy.deepcopy(original.content) | changes)
        self.manifests.append(twin)
        return twin.content

    def register(self, kind: str, name: str, **changes: Any) -> None:
        """Change how an object is registered with Pulumi."""
        self.manifests = [
            replace(one, resource=replace(one.resource, **changes)) if (one.kind, one.name) == (kind, name) else one
            for one in self.manifests
        ]


@dataclass(frozen=True, slots=True)
class Mistake:
    text: str
    make: Callable[[Stack], Any]
    found_by: str
    """The check that must find it; others may, too."""
    stack: str = "prod"


DEPLOYMENT, AGENT = "Deployment", "agent-small"

MISTAKES = (
    Mistake(
        "a field spelled wrong: `replica`",
        lambda s: s.spec(DEPLOYMENT, "judge").update(replica=3),
        VALID_ALONE,
    ),
    Mistake(
        "a field at the wrong depth: `containers` beside `template`",
        lambda s: s.spec(DEPLOYMENT, "judge").update(containers=[]),
        VALID_ALONE,
    ),
    Mistake(
        'a number given as text: `containerPort: "8710"`',
        lambda s: s.box(DEPLOYMENT, AGENT)["ports"][0].update(containerPort="8710"),
        VALID_ALONE,
    ),
    Mistake(
        "KEDA: `minReplicas` where it is `minReplicaCount`",
        lambda s: s.spec("ScaledObject", AGENT).update(minReplicas=1),
        VALID_ALONE,
    ),
    Mistake(
        "KEDA: a queue depth given as a number; it must be text",
        lambda s: s.spec("ScaledObject", AGENT)["triggers"][0]["metadata"].update(value=64),
        VALID_ALONE,
    ),
    Mistake(
        "the job of a ScaledJob has a field that no Job has",
        lambda s: s.spec("ScaledJob", "trainer")["jobTargetRef"].update(retries=3),
        VALID_ALONE,
    ),
    Mistake(
        "memory of `4GB`",
        lambda s: s.box(DEPLOYMENT, AGENT)["resources"]["requests"].update(memory="4GB"),
        "quantities_parse_and_fit",
    ),
    Mistake(
        "memory of `512`: bytes, the unit is missing",
        lambda s: s.box(DEPLOYMENT, "scorer")["resources"]["limits"].update(memory="512"),
        "quantities_parse_and_fit",
    ),
    Mistake(
        "more memory asked for than the limit",
        lambda s: s.box(DEPLOYMENT, "scorer")["resources"]["requests"].update(memory="64Gi"),
        "quantities_parse_and_fit",
    ),
    Mistake(
        "one GPU asked for, a limit of two",
        lambda s: s.box(DEPLOYMENT, "judge")["resources"]["requests"].update({"nvidia.com/gpu": "1"}),
        "quantities_parse_and_fit",
    ),
    Mistake(
        "no limit of memory",
        lambda s: s.box("StatefulSet", "rabbitmq")["resources"].pop("limits"),
        "quantities_parse_and_fit",
    ),
    Mistake(
        "a Deployment's selector does not match its pods",
        lambda s: s.spec(DEPLOYMENT, "scorer")["selector"]["matchLabels"].update({"app.kubernetes.io/instance": "x"}),
        "controllers_select_their_pods",
    ),
    Mistake(
        "a Deployment selects the pods of all others, too",
        lambda s: s.spec(DEPLOYMENT, "scorer")["selector"].update(matchLabels={"app.kubernetes.io/part-of": "ratchet"}),
        "controllers_select_their_pods",
    ),
    Mistake(
        "a Service selects no pods",
        lambda s: s.spec("Service", "judge").update(selector={"app": "judge"}),
        "services_reach_pods",
    ),
    Mistake(
        "a Service's port leads to a port name the pods do not have",
        lambda s: s.spec("Service", "judge")["ports"][0].update(targetPort="https"),
        "services_reach_pods",
    ),
    Mistake(
        "a container mounts a volume the pod does not have",
        lambda s: s.box(DEPLOYMENT, "orchestrator")["volumeMounts"][0].update(name="log"),
        "mounts_and_volumes_agree",
    ),
    Mistake(
        "a volume of a claim that is not there",
        lambda s: s.pod(DEPLOYMENT, "orchestrator")["volumes"][0]["persistentVolumeClaim"].update(claimName="log"),
        "mounts_and_volumes_agree",
    ),
    Mistake(
        "a file mounted that the ConfigMap does not have",
        lambda s: s.get("ConfigMap", "rabbitmq-files")["data"].pop("enabled_plugins"),
        "mounts_and_volumes_agree",
    ),
    Mistake(
        "two mounts at one path",
        lambda s: s.box(DEPLOYMENT, "orchestrator")["volumeMounts"][1].update(mountPath="/data/logs"),
        "mounts_and_volumes_agree",
    ),
    Mistake(
        "a claim of several pods is ReadWriteOnce",
        lambda s: s.spec("PersistentVolumeClaim", "logs").update(accessModes=["ReadWriteOnce"]),
        "shared_claims_can_be_shared",
    ),
    Mistake(
        "a broker's disk no larger than what it must keep free",
        lambda s: s.spec("StatefulSet", "rabbitmq")["volumeClaimTemplates"][0]["spec"]["resources"].update(
            requests={"storage": "1Gi"}
        ),
        "the_broker_has_room",
    ),
    Mistake(
        "a Secret that is mounted is not there",
        lambda s: s.remove("Secret", AGENT),
        "mounts_and_volumes_agree",
    ),
    Mistake(
        "a key of a Secret that is not there",
        lambda s: s.box(DEPLOYMENT, "scorer")["env"].append(
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "scorer", "key": "RATCHET_SCORER_JUDGE_API_KEY"}}}
        ),
        "environment_comes_from_somewhere",
    ),
    Mistake(
        "a ConfigMap's name spelled wrong",
        lambda s: s.box(DEPLOYMENT, "scorer")["envFrom"][0]["configMapRef"].update(name="score"),
        "environment_comes_from_somewhere",
    ),
    Mistake(
        "a probe asks a port by a name the container does not have",
        lambda s: s.box(DEPLOYMENT, "scorer")["readinessProbe"]["httpGet"].update(port="web"),
        "probes_find_their_port",
    ),
    Mistake(
        "a container without a readiness probe",
        lambda s: s.box(DEPLOYMENT, "scorer").pop("readinessProbe"),
        "probes_find_their_port",
    ),
    Mistake(
        "a service is told another port than its container's",
        lambda s: s.get("ConfigMap", "scorer")["data"].update(RATCHET_SCORER_HTTP_PORT="8080"),
        "services_listen_where_they_are_asked",
    ),
    Mistake(
        "a service account that is not there",
        lambda s: s.pod(DEPLOYMENT, "scorer").update(serviceAccountName="default-scorer"),
        "accounts_exist",
    ),
    Mistake(
        "an HPA and a ScaledObject on one Deployment",
        lambda s: s.copy(
            "ScaledObject",
            AGENT,
            apiVersion="autoscaling/v2",
            kind="HorizontalPodAutoscaler",
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": DEPLOYMENT, "name": AGENT},
                "minReplicas": 1,
                "maxReplicas": 4,
            },
        ),
        "one_autoscaler_for_each",
    ),
    Mistake(
        "an autoscaled Deployment says how many replicas it has",
        lambda s: s.spec(DEPLOYMENT, AGENT).update(replicas=2),
        "one_autoscaler_for_each",
    ),
    Mistake(
        "a ScaledObject's target is not there",
        lambda s: s.spec("ScaledObject", AGENT)["scaleTargetRef"].update(name="agent"),
        "one_autoscaler_for_each",
    ),
    Mistake(
        "agents scale to none: no candidate could be validated",
        lambda s: s.spec("ScaledObject", AGENT).update(minReplicaCount=0),
        "scaled_within_reason",
    ),
    Mistake(
        "the orchestrator has one replica: no standby",
        lambda s: s.spec(DEPLOYMENT, "orchestrator").update(replicas=1),
        "scaled_within_reason",
    ),
    Mistake(
        "a broker of two nodes",
        lambda s: s.spec("StatefulSet", "rabbitmq").update(replicas=2),
        "scaled_within_reason",
    ),
    Mistake(
        "an HPA from 3 to 2",
        lambda s: s.spec("HorizontalPodAutoscaler", AGENT).update(minReplicas=3),
        "scaled_within_reason",
        "dev",
    ),
    Mistake(
        "a trigger logs in by a TriggerAuthentication that is not there",
        lambda s: s.remove("TriggerAuthentication", "broker-depths"),
        "triggers_can_log_in",
    ),
    Mistake(
        "a TriggerAuthentication names a key its Secret does not have",
        lambda s: s.spec("TriggerAuthentication", "broker-depths")["secretTargetRef"][0].update(key="url"),
        "triggers_can_log_in",
    ),
    Mistake(
        "the trainer runs for ever: it is not told to end after one request",
        lambda s: s.get("ConfigMap", "trainer")["data"].pop("RATCHET_TRAINER_ONCE"),
        "jobs_end",
    ),
    Mistake(
        "a job without a deadline",
        lambda s: s.spec("ScaledJob", "trainer")["jobTargetRef"].pop("activeDeadlineSeconds"),
        "jobs_end",
    ),
    Mistake(
        "the namespace given as text: nothing waits for it",
        lambda s: s.register("ConfigMap", "scorer", waits_for=frozenset()),
        "in_the_namespace_and_after_it",
    ),
    Mistake(
        "an object in another namespace",
        lambda s: s.get("ConfigMap", "scorer")["metadata"].update(namespace="default"),
        "in_the_namespace_and_after_it",
    ),
    Mistake(
        "two objects of one kind and name",
        lambda s: s.copy("ConfigMap", "scorer"),
        "unique_and_valid",
    ),
    Mistake(
        "a name with a capital letter and an underscore",
        lambda s: s.get("ConfigMap", "dashboard-fleet")["metadata"].update(name="Fleet_dashboard"),
        "unique_and_valid",
    ),
    Mistake(
        "a port's name longer than 15 letters",
        lambda s: s.box("StatefulSet", "rabbitmq")["ports"][0].update(name="advanced-message-queue"),
        "unique_and_valid",
    ),
    Mistake(
        "a StatefulSet's Service is not headless",
        lambda s: s.spec("Service", "rabbitmq-nodes").pop("clusterIP"),
        "names_resolve",
    ),
    Mistake(
        "a disruption budget selects no pods",
        lambda s: s.spec("PodDisruptionBudget", "scorer")["selector"].update(matchLabels={"app": "scorer"}),
        "budgets_protect_and_let_drain",
    ),
    Mistake(
        "a disruption budget that never lets a node be emptied",
        lambda s: s.spec("PodDisruptionBudget", "judge").update(maxUnavailable=0),
        "budgets_protect_and_let_drain",
    ),
    Mistake(
        "a ServiceMonitor reads a port its Service does not have",
        lambda s: s.spec("ServiceMonitor", "scorer")["endpoints"][0].update(port="metrics"),
        "monitors_find_a_port",
    ),
    Mistake(
        "pods are spread by the labels of others",
        lambda s: s.pod(DEPLOYMENT, AGENT)["topologySpreadConstraints"][0]["labelSelector"].update(
            matchLabels={"app": "agent"}
        ),
        "spread_counts_its_own_pods",
    ),
    Mistake(
        "a pod is killed before its drain ends",
        lambda s: s.pod(DEPLOYMENT, AGENT).update(terminationGracePeriodSeconds=30),
        "drain_is_given_time",
    ),
    Mistake(
        "one generation may take longer than the drain waits",
        lambda s: s.get("ConfigMap", AGENT)["data"].update(RATCHET_AGENT_GENERATION_TIMEOUT_S="600"),
        "drain_is_given_time",
    ),
    Mistake(
        "an update replaces all replicas at once",
        lambda s: s.spec(DEPLOYMENT, "orchestrator").update(strategy={"type": "Recreate"}),
        "updates_drain",
    ),
    Mistake(
        "an image named `latest`",
        lambda s: s.box(DEPLOYMENT, "scorer").update(image="registry.example.com/ratchet/ratchet-scorer:latest"),
        "images_are_pinned",
    ),
    Mistake(
        "a GPU asked for, but GPU nodes not tolerated",
        lambda s: s.pod(DEPLOYMENT, "judge").pop("tolerations"),
        "gpus_are_on_gpu_nodes",
    ),
    Mistake(
        "a runner under the runtime's own seccomp profile, where it can make no sandbox",
        lambda s: s.pod(DEPLOYMENT, "runner")["securityContext"].update(seccompProfile={"type": "RuntimeDefault"}),
        "sandboxes_are_closed_in",
        "programs",
    ),
    Mistake(
        "a seccomp profile that allows mounts, on a pod that makes no sandboxes",
        lambda s: s.pod(DEPLOYMENT, AGENT)["securityContext"].update(
            seccompProfile={"type": "Localhost", "localhostProfile": "profiles/ratchet-sandbox.json"}
        ),
        "sandboxes_are_closed_in",
        "programs",
    ),
    Mistake(
        "a runner is told to be on gVisor's kernel, and has no RuntimeClass",
        lambda s: s.get("ConfigMap", "runner")["data"].update(RATCHET_SANDBOX_ISOLATION="gvisor"),
        "sandboxes_are_closed_in",
        "programs",
    ),
    Mistake(
        "a scorer that runs code reaches the world without a workspace to fetch",
        lambda s: s.get("ConfigMap", "scorer")["data"].pop("RATCHET_WORKSPACE_URLS"),
        "sandboxes_are_closed_in",
        "programs",
    ),
    Mistake(
        "a runner may write to what its programs are made of",
        lambda s: next(
            mount for mount in s.box(DEPLOYMENT, "runner")["volumeMounts"] if mount["name"] == "environments"
        ).pop("readOnly"),
        "programs_are_installed_apart",
        "programs",
    ),
    Mistake(
        "what programs require is installed where no runner looks",
        lambda s: s.get("ConfigMap", "programs")["data"].update(RATCHET_PROGRAM_ENVIRONMENTS="/data/environments"),
        "programs_are_installed_apart",
        "programs",
    ),
    Mistake(
        "who installs packages may publish tasks",
        lambda s: s.spec("NetworkPolicy", "programs")["egress"].append(
            {
                "to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/component": "broker"}}}],
                "ports": [{"port": 5672, "protocol": "TCP"}],
            }
        ),
        "programs_are_installed_apart",
        "programs",
    ),
    Mistake(
        "who installs packages sees the key that tokens are signed with",
        lambda s: s.pod("Job", "programs")["volumes"].append(
            {"name": "secret-files", "secret": {"secretName": "runner-token-files"}}
        ),
        "programs_are_installed_apart",
        "programs",
    ),
    Mistake(
        "who renews a runner's token, with the signing key, may be talked to",
        lambda s: s.spec("NetworkPolicy", "runner-token").update(
            ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": 8700, "protocol": "TCP"}]}]
        ),
        "signing_keys_are_out_of_reach",
        "programs",
    ),
    Mistake(
        "runners scale to none",
        lambda s: s.spec("ScaledObject", "runner").update(minReplicaCount=0),
        "scaled_within_reason",
        "programs",
    ),
    Mistake(
        "a runner is told an agent's address at a port that no policy opens",
        lambda s: s.get("ConfigMap", "runner")["data"].update(
            RATCHET_RUNNER_AGENTS="small=http://orchestrator-nodes:8700"
        ),
        "addresses_can_be_reached",
        "programs",
    ),
    Mistake(
        "a pod that may run as root",
        lambda s: s.pod(DEPLOYMENT, "judge")["securityContext"].pop("runAsNonRoot"),
        "pods_are_restricted",
    ),
    Mistake(
        "a container that may gain privileges",
        lambda s: s.box(DEPLOYMENT, "judge")["securityContext"].pop("allowPrivilegeEscalation"),
        "pods_are_restricted",
    ),
    Mistake(
        "a password in a ConfigMap",
        lambda s: s.get("ConfigMap", "scorer")["data"].update(RATCHET_AMQP_URL="amqp://scorer:hunter2@rabbitmq:5672/"),
        "secrets_stay_secret",
    ),
    Mistake(
        "a Secret stands unencrypted in the stack's state",
        lambda s: s.register("Secret", "scorer", secret=frozenset()),
        "secrets_stay_secret",
    ),
    Mistake(
        "a service listens to the network without keys to check tokens with",
        lambda s: s.get("ConfigMap", "scorer")["data"].pop("RATCHET_API_PUBLIC_KEYS"),
        "tokens_are_checked_with_public_keys",
    ),
    Mistake(
        "the private key among the public ones",
        lambda s: s.get("Secret", "scorer-files")["stringData"].update(
            {"jwks.json": '{"keys": [{"x": "…", "d": "…"}]}'}
        ),
        "tokens_are_checked_with_public_keys",
    ),
    Mistake(
        "an audit on a volume that can only be read",
        lambda s: next(
            mount for mount in s.box(DEPLOYMENT, "scorer")["volumeMounts"] if mount["name"] == "audit"
        ).update(readOnly=True),
        "tokens_are_checked_with_public_keys",
    ),
    Mistake(
        "an Ingress without TLS",
        lambda s: s.spec("Ingress", "gateway").pop("tls"),
        "the_way_in_leads_somewhere",
    ),
    Mistake(
        "an Ingress to a port its Service does not have",
        lambda s: s.spec("Ingress", "gateway")["rules"][0]["http"]["paths"][0]["backend"]["service"].update(
            port={"name": "https"}
        ),
        "the_way_in_leads_somewhere",
    ),
    Mistake(
        "an Ingress whose controller no NetworkPolicy lets in",
        lambda s: s.spec("NetworkPolicy", "gateway").update(ingress=[]),
        "the_way_in_leads_somewhere",
    ),
    Mistake(
        "nothing is denied by default",
        lambda s: s.remove("NetworkPolicy", "default-deny"),
        "nothing_is_allowed_by_default",
    ),
    Mistake(
        "a NetworkPolicy for pods that do not exist",
        lambda s: s.spec("NetworkPolicy", "scorer")["podSelector"].update(matchLabels={"app": "scorer"}),
        "nothing_is_allowed_by_default",
    ),
    Mistake(
        "a rule without a peer: anybody may come in",
        lambda s: s.spec("NetworkPolicy", "judge")["ingress"][0].pop("from"),
        "nothing_is_allowed_by_default",
    ),
    Mistake(
        "the scorer may ask the judge, but the judge may not hear it",
        lambda s: s.spec("NetworkPolicy", "judge")["ingress"].pop(0),
        "flows_are_open_at_both_ends",
    ),
    Mistake(
        "a flow at a port where nothing listens",
        lambda s: s.spec("NetworkPolicy", "rabbitmq")["ingress"][0]["ports"][0].update(port=5673),
        "flows_are_open_at_both_ends",
    ),
    Mistake(
        "the judge's address has a port its Service does not have",
        lambda s: s.get("ConfigMap", "scorer")["data"].update(RATCHET_SCORER_JUDGE_URL="http://judge:8080/v1"),
        "addresses_can_be_reached",
    ),
    Mistake(
        "the judge's address names a Service that is not there",
        lambda s: s.get("ConfigMap", "scorer")["data"].update(RATCHET_SCORER_JUDGE_URL="http://vllm:8000/v1"),
        "addresses_can_be_reached",
    ),
    Mistake(
        "an agent is told another port than its vLLM's",
        lambda s: s.get("ConfigMap", AGENT)["data"].update(RATCHET_AGENT_VLLM_URL="http://127.0.0.1:8001"),
        "addresses_can_be_reached",
    ),
    Mistake(
        "the manager's database is in no Secret of the site",
        lambda s: s.box(DEPLOYMENT, "manager")["env"][-1].update(valueFrom=None, value="postgresql://u:p@h/n"),
        "the_manager_reaches_its_database",
        "jobs",
    ),
    Mistake(
        "the manager may not reach its database",
        lambda s: s.spec("NetworkPolicy", "manager").update(
            egress=[one for one in s.spec("NetworkPolicy", "manager")["egress"] if one["ports"][0]["port"] != 5432]
        ),
        "the_manager_reaches_its_database",
        "jobs",
    ),
    Mistake(
        "the runner of registered agents is not told where the manager is",
        lambda s: s.get("ConfigMap", "runner")["data"].pop("RATCHET_MANAGER_URL"),
        "settings_are_known_and_agree",
        "jobs",
    ),
    Mistake(
        "a rotation makes no new password for the broker's users",
        lambda s: [dict.pop(one.properties, "keepers", None) for one in s.random],
        "random_values_are_long_and_made_anew",
    ),
    Mistake(
        "the Ingress sends jobs to the gateway",
        lambda s: s.spec("Ingress", "gateway")["rules"][0]["http"].update(
            paths=s.spec("Ingress", "gateway")["rules"][0]["http"]["paths"][-1:]
        ),
        "the_way_in_leads_somewhere",
        "jobs",
    ),
)


def found_by(good: Mapping[str, Manifests]) -> dict[str, set[str]]:
    """The checks that find each mistake, made alone in good manifests of its stack."""
    verdicts = {}
    for mistake in MISTAKES:
        stack = Stack(good[mistake.stack])
        mistake.make(stack)
        verdicts[mistake.text] = {finding.check for finding in findings(stack.with_mistake())}
    return verdicts


def table(verdicts: Mapping[str, set[str]]) -> str:
    """Markdown: a row for each mistake, with every check that finds it."""
    lines = ["| # | mistake | found by |", "| --- | --- | --- |"]
    lines += [
        f"| {number} | {text} | {', '.join(f'`{check}`' for check in sorted(checks)) or 'nothing'} |"
        for number, (text, checks) in enumerate(verdicts.items(), start=1)
    ]
    return "\n".join([*lines, "", summary(verdicts)]) + "\n"


def summary(verdicts: Mapping[str, set[str]]) -> str:
    """Return the sentence that docs/infra.md has of the table."""
    known = sum(bool(checks) for checks in verdicts.values())
    alone = sum(VALID_ALONE in checks for checks in verdicts.values())
    return f"{len(verdicts)} mistakes, {known} of them found; a schema validator alone finds {alone}."


PROGRAMS = """
[agents.small]
programs = ["mine", "shell"]

[programs.mine]
command = ["python3", "/agent/agent.py"]
binds = { "/agent" = "/usr/share" }
"""


def with_programs() -> dict[str, Any]:
    """The stack `prod`, with programs that answer tasks and hidden tests that score them."""
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"] |= {
        "runner": {"programs": PROGRAMS, "folder": "agents-of-the-site", "packageAccess": True},
        "workspaceUrls": ["https://github.com/our-team/"],
    }
    configuration["ratchet:fleet"]["scorer"]["strategy"] = "0.8*tests + 0.2*judge:absolute"
    return configuration


def with_manager() -> dict[str, Any]:
    """The stack `prod`, with a manager, and a runner for the agents that are registered with it."""
    configuration = stack_configuration("prod")
    configuration["ratchet:fleet"] |= {
        "manager": {"database": {"urlSecret": "jobs-db", "namespace": "databases"}, "prices": 'currency = "EUR"'},
        "runner": {},
    }
    return configuration


def stacks() -> Iterator[tuple[str, Manifests]]:
    for name in ("dev", "prod"):
        yield name, manifests(record(name, stack_configuration(name)))
    yield "programs", manifests(record("prod", with_programs()))
    yield "jobs", manifests(record("prod", with_manager()))


if __name__ == "__main__":
    sys.stdout.write(table(found_by(dict(stacks()))))
