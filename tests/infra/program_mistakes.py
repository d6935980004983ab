"""Mistakes people make in the program of infra/, made on purpose in its source, and the check that must find each.

One for each check that has none in seeded_mistakes.py, and more where the mistake takes several words. A changed
literal or a missing argument is what `bench.infra_mutants` makes everywhere. What is changed is a line of the program.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from bench.infra_mutants.mutating import INFRA
from bench.infra_mutants.stacks import configurations
from bench.infra_mutants.trying import program_with
from infra.checks import CHECKS, Finding, findings
from infra.render.manifests import manifests
from infra.render.recording import RENDERED, record


@dataclass(frozen=True, slots=True)
class ProgramMistake:
    """`right` is replaced by `wrong` in a module of infra/; `stack` is one of bench/infra_mutants/stacks.py."""

    text: str
    module: str
    right: str
    wrong: str
    found_by: str
    stack: str = "everything"

    def faults(self) -> list[Finding]:
        """Return the faults that the check `found_by` finds."""
        source = (INFRA / f"{self.module}.py").read_text("utf-8")
        assert self.right in source, f"infra/{self.module}.py has no {self.right!r}"
        configuration = configurations()[self.stack]
        tree = ast.parse(source.replace(self.right, self.wrong))
        with program_with(self.module, tree) as program:
            found = manifests(record("prod", configuration, program=program))
            if self.found_by != ROTATION:
                return findings(found, checks=[check for check in CHECKS if check.__name__ == self.found_by])
            others = manifests(record("prod", configuration, f"{RENDERED}again-", program))
        return findings(found, others, checks=())


PROBES = "probes_ask_pages_that_are_served"
ROTATION = "new_secrets_replace_their_pods"
"""Only this check compares two renderings."""
IMAGES, FOLDERS = "images_hold_what_they_run", "folders_are_there_with_their_rights"
DATA, VLLM = "the_broker_keeps_its_data", "vllm_serves_what_it_must"
KEDA = "keda_asks_the_management_interface"
MACHINES = "pods_of_one_piece_of_work_find_each_other"

PROGRAM_MISTAKES = (
    ProgramMistake(
        "key ids that are no thumbprints", "api_keys", 'separators=(",", ":")', "", "keys_are_what_the_services_read"
    ),
    ProgramMistake(
        "images without the registry's secret",
        "pods",
        "[LocalObjectReferenceArgs(name=settings.images.pull_secret)]",
        "[]",
        "images_can_be_pulled",
    ),
    ProgramMistake(
        "HOME on the read-only disk", "pods", '{"HOME": "/tmp"}', '{"HOME": "/root"}', "homes_can_be_written"
    ),
    ProgramMistake(
        "an agent that never grows", "fleet", "by_cpu=not on_gpu", "by_cpu=False", "what_may_grow_is_scaled", "dev"
    ),
    ProgramMistake(
        "a direction that is none",
        "workload",
        '["Ingress", "Egress"]',
        '["Ingres", "Egress"]',
        "words_are_kubernetes_own",
    ),
    ProgramMistake("a command with an option that is none", "fleet", '"--timeout", "300"', '"--timeou", "300"', IMAGES),
    ProgramMistake("nobody declares the queues", "fleet", 'args=("broker", "setup",', 'args=("broker",', IMAGES),
    ProgramMistake(
        "a file that is elsewhere", "fleet", '{PROGRAMS_AT}/{PROGRAMS}"}', '{PROGRAMS_AT}/x{PROGRAMS}"}', FOLDERS
    ),
    ProgramMistake("a preStop without its shell", "broker", 'return "/bin/bash", ', "return ", DATA, "dev"),
    ProgramMistake("vLLM asked for, and none there", "fleet", 'wanted.engine == "vllm"', "False", VLLM),
    ProgramMistake(
        "ten trainers of one agent", "fleet", "else Scale(1, 1)", "else Scale(10, 10)", "scaled_within_reason", "dev"
    ),
    ProgramMistake(
        "a token that ends before it is renewed",
        "runner",
        "RENEWED_EVERY_S, LIVES = 3600",
        "RENEWED_EVERY_S, LIVES = 36000",
        "tokens_are_renewed_in_time",
    ),
    ProgramMistake("pods meet under another name", "pods", '-nodes" if jobs', '-pods" if jobs', MACHINES),
    ProgramMistake(
        "free ports closed between pods", "network", "FREE_PORTS = (1024,", "FREE_PORTS = (29500,", MACHINES
    ),
    ProgramMistake(
        "clients ask every pod of the judge",
        "workload",
        "selector=self._asked",
        "selector=self.labels",
        "services_reach_pods",
    ),
    ProgramMistake(
        "a judge of fewer GPUs than it splits over",
        "vllm",
        "str(max(1, resources.gpus))",
        "str(2 * resources.gpus)",
        VLLM,
    ),
    ProgramMistake("what is left of a group stays", "controllers", "RecreateGroupOnPodRestart", "None", MACHINES),
    ProgramMistake(
        "liveness on a wrong path",
        "probes",
        'http("/healthz", "http", every_s=30',
        'http("/health", "http", every_s=30',
        PROBES,
    ),
    ProgramMistake(
        "the gateway with the wrong image",
        "fleet",
        'image_name("gateway", settings)',
        'image_name("cli", settings)',
        IMAGES,
    ),
    ProgramMistake("no fsGroup", "pods", "fs_group=process.user,", "", "containers_may_use_their_volumes"),
    ProgramMistake(
        "vLLM without a GPU",
        "pods",
        "resources(program.resources, settings",
        'resources(program.resources.model_copy(update={"gpus": 0}), settings',
        VLLM,
    ),
    ProgramMistake(
        "a scorer scaled by the wrong queue",
        "fleet",
        'wanted, "responses",',
        'wanted, "rewards",',
        "scaled_by_what_it_consumes",
    ),
    ProgramMistake(
        "KEDA's port", "broker", 'self._url("http", user, MANAGEMENT)', 'self._url("http", user, AMQP)', KEDA
    ),
    ProgramMistake(
        "models mounted elsewhere in the sidecar",
        "fleet",
        "mounts=tuple(mount for mount in main.mounts if",
        'mounts=tuple(replace(mount, path=mount.path.replace("/models", "/model")) for mount in main.mounts if',
        "sidecars_see_what_their_agent_names",
    ),
    ProgramMistake(
        "a configuration hash that ignores secrets",
        "workload",
        "(plain + repr(sorted(dict(values).items())))",
        "plain",
        ROTATION,
    ),
    ProgramMistake(
        "a misspelt topology key",
        "pods",
        '"topology.kubernetes.io/zone"',
        '"topology.kubernetes.io/zones"',
        "pods_are_placed",
    ),
    ProgramMistake("preStop longer than the grace period", "broker", "-t {DRAIN_S - 60}", "-t {DRAIN_S + 60}", DATA),
    ProgramMistake("the index on the shared claim", "fleet", 'INDEX_AT = "/index"', 'INDEX_AT = "/data/logs"', FOLDERS),
    ProgramMistake(
        "a broker image older than its discovery",
        "settings",
        "rabbitmq:4.1.4-management",
        "rabbitmq:3.13.7-management",
        DATA,
    ),
    ProgramMistake(
        "a flow to whom nobody asks",
        "network",
        "Flow(Role.SCORER, Role.JUDGE, VLLM)",
        "Flow(Role.SCORER, Role.JUDGE, VLLM), Flow(Role.TRAINER, Role.JUDGE, VLLM)",
        "who_is_asked_is_reached_and_nobody_else",
    ),
    ProgramMistake(
        "the cloud's metadata in reach", "network", ', "169.254.0.0/16"', "", "the_world_is_reached_by_whom_it_must"
    ),
    ProgramMistake(
        "KEDA's namespace may reach the wrong port",
        "network",
        "settings.keda_namespace, MANAGEMENT",
        "settings.keda_namespace, AMQP",
        "other_namespaces_reach_what_is_for_them",
    ),
    ProgramMistake(
        "the vLLM beside an agent is not scraped",
        "process",
        "return (self.metrics, *(port.name for port in beside))",
        "return (self.metrics,)",
        "whoever_has_metrics_is_read",
    ),
    ProgramMistake(
        "the vLLM beside an agent counts as the agent's job, so that its loading wakes somebody",
        "workload",
        '{"job": beside.name}',
        '{"job": self._process.name}',
        "whoever_has_metrics_is_read",
    ),
    ProgramMistake(
        "nobody reads how many bytes wait in a queue",
        "workload",
        "Role.BROKER or",
        "Role.ORCHESTRATOR or",
        "the_bytes_of_queues_are_read",
    ),
    ProgramMistake(
        "of each queue the bytes in hand are read, which its bound leaves out",
        "workload",
        "messages_ready_bytes",
        "messages_bytes",
        "the_bytes_of_queues_are_read",
    ),
    ProgramMistake(
        "two pages of one broker are one job, so each hides whether the other is there",
        "workload",
        '{"job": "rabbitmq-queues"}',
        "{}",
        "whoever_has_metrics_is_read",
    ),
    ProgramMistake(
        "alerts link to no address",
        "monitoring",
        "replace(RUNBOOKS, wanted.runbooks)",
        'replace(RUNBOOKS, "")',
        "whoever_has_metrics_is_read",
    ),
    ProgramMistake(
        "the orchestrator is not told the objective of latency",
        "fleet",
        "str(settings.orchestrator.objectives.latency_s)",
        '"30"',
        "what_the_stack_asks_for_is_told",
    ),
    ProgramMistake(
        "the backup lies where nothing is mounted",
        "backups",
        "Mount(SiteClaim(wanted.claim, writable=True), BACKUPS_AT)",
        'Mount(SiteClaim(wanted.claim, writable=True), "/backup")',
        "folders_are_there_with_their_rights",
    ),
    ProgramMistake(
        "the backup is not encrypted though there is a key",
        "backups",
        'if wanted.key_secret else ""',
        'if not wanted.key_secret else ""',
        "folders_are_there_with_their_rights",
    ),
    ProgramMistake(
        "trainings drive out what serves",
        "scheduling",
        '"training": 100',
        '"training": 100_000',
        "what_serves_goes_first",
    ),
    ProgramMistake(
        "trainings wait in no queue",
        "controllers",
        "labels=labels | queue_labels(process, foundation.settings)",
        "labels=labels",
        "trainings_wait_in_the_queue",
    ),
    ProgramMistake(
        "a quota without GPUs",
        "scheduling",
        "str(wanted.quota.gpus)",
        '"0"',
        "the_quota_lets_the_fleet_run",
    ),
    ProgramMistake(
        "no pods for an agent",
        "__main__",
        "for agent in settings.agents",
        "for agent in settings.agents[1:]",
        "the_fleet_is_whole",
    ),
    ProgramMistake(
        "the logs go with the stack",
        "foundation",
        "CAN_BE_MADE_AGAIN = (",
        "CAN_BE_MADE_AGAIN = (LOGS, ",
        "claims_keep_what_cannot_be_made_again",
    ),
    ProgramMistake("one process on two GPUs", "fleet", "str(max(1, wanted.resources.gpus))", '"1"', "gpus_are_used"),
    ProgramMistake(
        "the broker's disk is not told",
        "fleet",
        '{"RATCHET_BROKER_DISK_GB": f"{disk_gb:g}"}',
        "{}",
        "queues_fit_the_brokers_disk",
    ),
    ProgramMistake(
        "an HPA that never scales",
        "autoscaling",
        "TARGET_CPU_PERCENT = 70",
        "TARGET_CPU_PERCENT = 700",
        "cpu_is_compared_with_a_share",
        "dev",
    ),
    ProgramMistake(
        "an agent logs in as setup",
        "fleet",
        "accounts.amqp_url(name)",
        "accounts.amqp_url(SETUP)",
        "users_are_those_of_the_table",
    ),
    ProgramMistake(
        "KEDA asks for queues outside the fleet's namespace",
        "autoscaling",
        "backlog.prefix + queue",
        "queue",
        "scaled_by_what_it_consumes",
    ),
    ProgramMistake(
        "users of the broker without the fleet's namespace",
        "broker",
        "given, strict=True)), self._prefix)",
        'given, strict=True)), "")',
        "users_are_those_of_the_table",
    ),
    ProgramMistake(
        "all pods have a token of the Kubernetes API",
        "pods",
        "automount_service_account_token=process.leads_by_lease",
        "automount_service_account_token=True",
        "accounts_exist",
        "dev",
    ),
    ProgramMistake(
        "no way to the API server",
        "workload",
        " + api_egress(process, foundation.settings)",
        "",
        "who_leads_by_a_lease_may_and_nobody_else",
        "dev",
    ),
    ProgramMistake(
        "two fleets lead by one Lease",
        "shards",
        '"{process.name}-{number}"} if',
        '"{process.name}"} if',
        "who_leads_by_a_lease_may_and_nobody_else",
        "dev",
    ),
    ProgramMistake(
        "Services that an update waits for",
        "workload",
        "metadata(name, labels=labels, annotations=NO_WAIT)",
        "metadata(name, labels=labels)",
        "nobody_is_waited_for",
    ),
    ProgramMistake(
        "a gateway asks nobody",
        "shards",
        '"orchestrator-{number}-")',
        '"orchestrator-{number}-x")',
        "fleets_are_whole_and_decide_as_one",
        "dev",
    ),
    ProgramMistake(
        "backups with another key than the site's",
        "backups",
        'KEY = "/backups", "/run/backup-key", "key"',
        'KEY = "/backups", "/run/backup-key", "ke"',
        "backups_are_encrypted_and_pruned",
    ),
    ProgramMistake(
        "two fleets write the same logs",
        "shards",
        '"{fleet.LOGS_AT}/fleet-{number}"',
        '"{fleet.LOGS_AT}"',
        "fleets_are_whole_and_decide_as_one",
        "dev",
    ),
    ProgramMistake(
        "a fleet without a scorer",
        "shards",
        "    make_workload(fleet.scorer(mine, users, keys), queues)\n",
        "",
        "fleets_are_whole_and_decide_as_one",
        "dev",
    ),
    ProgramMistake(
        "the deciding fleet does not read the other's logs",
        "__main__",
        "as_shard(fleet.orchestrator(settings, accounts, keys), 0, settings)",
        "fleet.orchestrator(settings, accounts, keys)",
        "fleets_are_whole_and_decide_as_one",
        "dev",
    ),
    ProgramMistake(
        "the broker does not know the users of the second fleet",
        "broker",
        "pulumi.Output.all(own, *(one.definitions() for one in self._shards.values()))",
        "pulumi.Output.all(own)",
        "users_are_those_of_the_table",
        "dev",
    ),
    ProgramMistake(
        "agents that do not wait for their model",
        "__main__",
        "after=[queues, *models])\n    for agent",
        "after=[queues])\n    for agent",
        "pods_start_after_what_they_need",
        "dev",
    ),
    ProgramMistake(
        "an agent asks its vLLM at no port",
        "vllm",
        'URL_BESIDE = f"http://127.0.0.1:',
        'URL_BESIDE = f"http://127.0.0.1',
        "vllm_serves_what_it_must",
    ),
    ProgramMistake(
        "a judge is asked at a path that it does not serve",
        "vllm",
        '{VLLM}/v1"',
        '{VLLM}/v"',
        "vllm_serves_what_it_must",
    ),
    ProgramMistake(
        "a log may grow larger than its claim",
        "fleet",
        "CLAIM_SHARE = 0.8",
        "CLAIM_SHARE = 8.0",
        "what_is_kept_fits_its_claim",
    ),
    ProgramMistake(
        "a broker without the management plugin",
        "settings",
        "rabbitmq:4.1.4-management",
        "rabbitmq:4.1.4",
        "the_broker_keeps_its_data",
    ),
    ProgramMistake(
        "small models where no agent looks",
        "fleet",
        '"--out", MODELS_AT',
        '"--out", f"{MODELS_AT}/small"',
        "the_fleet_is_whole",
        "dev",
    ),
    ProgramMistake(
        "a large model has five minutes to load",
        "vllm",
        "LOADING_S // 10",
        "LOADING_S // 60",
        "vllm_serves_what_it_must",
    ),
    ProgramMistake(
        "the way in ends calls that wait for a task",
        "settings",
        'proxy-read-timeout": "700"',
        'proxy-read-timeout": "60"',
        "the_way_in_leads_somewhere",
    ),
    ProgramMistake(
        "a service is restarted when it misses one answer",
        "probes",
        "every_s=30, failures=6",
        "every_s=30, failures=1",
        "probes_ask_pages_that_are_served",
    ),
    ProgramMistake(
        "a claim of another claim's size",
        "foundation",
        "(ENVIRONMENTS, storage.environments)",
        "(ENVIRONMENTS, storage.rollouts)",
        "claims_have_the_size_asked_for",
    ),
    ProgramMistake(
        "a probe's command has one second",
        "probes",
        "        timeout_seconds=timeout_s,\n",
        "",
        "probes_ask_pages_that_are_served",
    ),
)
