"""Our processes against what their code declares: images, commands, settings, and the pages that probes ask."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import (
    FOREIGN,
    OTHER_IMAGES,
    PREFIX,
    OurContainer,
    fleet,
    folder_of_models,
    our_containers,
    pages,
    process_of,
    settings_class,
    topology,
)
from infra.checks.fleets import name_in_fleet, number_of, prefix_of
from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.orchestrator.settings import OrchestratorSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

OUR_COMMAND = re.compile(r"\bratchet ([^>&|;\n]+)")
OF_ONE_PROCESS = {"amqp_url", "declare_topology", "index_dir", "decision_keys", "drain_grace_s", "log_keep_gb"} | {
    "program_environments", "programs", "api_hosts", "manager_url", "prices",
}  # fmt: skip
"""Settings that processes of one fleet may differ in. All others must be the same for all, or two of them disagree."""
OF_ONE_FLEET = {"namespace", "logs_dir"}
"""Settings that several fleets on one broker differ in."""
VARIABLES = {"HOME", "HF_HOME", "HF_HUB_OFFLINE", "HF_TOKEN_PATH"}
"""Variables that a process of ours has beside its settings."""
ALWAYS = ("orchestrator", "agent", "trainer", "broker", "gateway", "operator", "setup")
WHOLE_BREAK_S = (60, 600)
"""Seconds without an answer after which a container is restarted: sooner is a busy moment, later an outage."""
READY_WITHIN_S = 120
OF_OTHERS = frozenset({"/health", "/metrics"})
"""Pages of containers that are not ours: vLLM's and the broker's."""
FEWEST_STARTING_S = 60
FEWEST_COMMAND_S = 5


def the_fleet_is_whole(cluster: Cluster) -> Iterator[str]:
    """each role is one we know, each part of a fleet is there, and each agent has its pods"""
    known = {*OTHER_IMAGES, *FOREIGN, *(process[1].module for p in cluster.pods if (process := process_of(p)))}
    roles = {str(pods.labels.get(ROLE)) for pods in cluster.pods}
    for pods in cluster.pods:
        if pods.labels.get(ROLE) not in known:
            yield f"{pods} has the role {pods.labels.get(ROLE)!r}, which is none"
        if pods.labels.get("app.kubernetes.io/instance") != pods.owner.name:
            yield f"{pods} is labelled as instance {pods.labels.get('app.kubernetes.io/instance')!r}"
    needed = {*ALWAYS, *(["models"] if cluster.settings.make_small_models else [])}
    yield from (f"there are no pods of the role {role}" for role in sorted(needed - roles))
    models = [one.settings.agent_model for one in fleet(cluster) if isinstance(one.settings, AgentSettings)]
    made = {folder_of_models(one.box) for one in our_containers(cluster) if one.pods.labels.get(ROLE) == "models"}
    if made and not made & {model.rpartition("/")[0] for model in models}:
        yield f"small models are made in {', '.join(made)}, and no agent has one of them: they have {', '.join(models)}"
    declared = topology(cluster)
    for queue in declared.queues if declared else ():
        for consumer in {one.removesuffix("s") for one in queue.consumers} - {"user", "operator"}:
            name = "agent-" + consumer.removeprefix("agent ") if consumer.startswith("agent ") else consumer
            external = any(one.settings and one.settings.external_scorer for one in fleet(cluster))
            if not any(pods.owner.name == name for pods in cluster.pods) and not (name == "scorer" and external):
                yield f"nobody consumes the queue {queue.name}: there are no pods of {name}"


def images_hold_what_they_run(cluster: Cluster) -> Iterator[str]:
    """a container has its process's image of the stack's release, for GPUs where it has some, and runs what is in it"""
    images, runner = cluster.settings.images, cluster.settings.runner
    for one in our_containers(cluster):
        image, role = one.box["image"], str(one.pods.labels.get(ROLE))
        process = process_of(one.pods)
        name = f"{process[1].module if process else OTHER_IMAGES.get(role)}{'-cuda' * _has_gpus(one.box)}"
        digest = f"@{images.digests[name]}" if name in images.digests else ""
        wanted = f"{images.registry}/ratchet-{name}:{images.tag}{digest}"
        if role in ("runner", "installer") and runner and runner.image:
            wanted = runner.image
        if image != wanted:
            yield f"{one} has the image {image}; it is a {role}, so it needs {wanted}"
        yield from (f"{one}: {fault}" for fault in _command(one.box, bool(process)))


def _has_gpus(box: Mapping[str, Any]) -> bool:
    return any("gpu" in name for name in box.get("resources", {}).get("limits", {}))


def _command(box: Mapping[str, Any], is_service: bool) -> Iterator[str]:
    """Without a command the image's own is run: `python -m services.<service>`."""
    words = [*box.get("command", []), *box.get("args", [])]
    if is_service and words:
        yield f"a service takes no arguments, but is given {words}"
    if words[:2] == ["python", "-m"]:
        if len(words) < 3 or find_spec(words[2]) is None:
            yield f"there is no module {' '.join(words[2:3])} to run"
    elif words[:2] == ["sh", "-c"]:
        for found in OUR_COMMAND.finditer(" ".join(words[2:])):
            yield from _call(shlex.split(found[1].replace("\\", "")))
    elif words[:1] == ["broker"]:
        yield from _call(words)
    elif not is_service and words != ["sleep", "infinity"] and not "".join(words[:1]).isdigit():
        yield f"nobody knows what {words} runs"


def _call(words: list[str]) -> Iterator[str]:
    """The command line itself says whether it takes these words. Nothing is run."""
    from services.cli.app import app

    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="ratchet")
    try:
        while isinstance(command, TyperGroup) and words:
            _, command, words = command.resolve_command(context, words)
        command.make_context(command.name, words, parent=context)
    except typer.TyperException as error:
        yield f"`ratchet` does not take that: {error}"


def settings_are_known_and_agree(cluster: Cluster) -> Iterator[str]:
    """a process is told settings of its own only, it accepts each value, and all of a fleet are told the same"""
    for one in our_containers(cluster):
        known = {PREFIX + name.upper() for name in settings_class(one.pods).model_fields}
        ours = {name for name in one.variables if name.startswith(PREFIX)}
        yield from (f"{one} is told {name}, which is no setting of it" for name in sorted(ours - known))
        yield from (
            f"{one} is told {name}, which nothing reads" for name in sorted(one.variables.keys() - ours - VARIABLES)
        )
        sandboxes = "RATCHET_SANDBOX_ISOLATION" in one.variables
        offline = one.variables.get("HF_HUB_OFFLINE", "" if sandboxes or "HF_HOME" in one.variables else "1")
        if offline not in ("1", "0" if cluster.settings.hub_access and not sandboxes else "1"):
            yield f"{one}: HF_HUB_OFFLINE is {offline!r}: 1, or 0 where the stack has hub_access and it runs no sandbox"
        yield from (f"{one}: {fault}" for fault in one.faults)
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in fleet(cluster):
        number = number_of(one.pods, cluster.settings)
        for name in FleetSettings.model_fields.keys() - OF_ONE_PROCESS:
            of = f"{name} of fleet {number}" if number and name in OF_ONE_FLEET else name
            values[of][repr(getattr(one.settings, name, None))].append(one.pods.owner.name)
    for name, by_value in sorted(values.items()):
        if len(by_value) > 1:
            told_by = "; ".join(f"{value} for {', '.join(names)}" for value, names in sorted(by_value.items()))
            yield f"{PREFIX}{name.upper()} is not the same for all: {told_by}"
    yield from _same_programs(cluster)
    yield from _agents(cluster)


def what_the_stack_asks_for_is_told(cluster: Cluster) -> Iterator[str]:
    """what the stack's configuration says of a process is what the process is told"""
    stack = cluster.settings
    agents = {one.id: one for one in stack.agents}
    for one in our_containers(cluster):
        prefix, wanted = one.variables.get("RATCHET_NAMESPACE", ""), prefix_of(number_of(one.pods, stack), stack)
        if "RATCHET_AMQP_URL" in one.variables and prefix != wanted:
            yield f"{one} is told RATCHET_NAMESPACE={prefix!r}; the stack says {wanted!r}"
    for one in fleet(cluster):
        asked: dict[str, object] = {"adapter_max_rank": stack.adapter_max_rank, "log_level": stack.log_level}
        match one.settings:
            case AgentSettings(agent_id=agent_id) if agent_id in agents:
                agent = agents[agent_id]
                asked |= {"agent_engine": agent.engine, "agent_model": agent.model}
                asked |= {"agent_prefetch": agent.tasks_per_replica, "agent_max_adapters": agent.max_adapters}
                asked |= {"agent_generation_timeout_s": agent.generation_timeout_s}
            case ScorerSettings():
                audits = one.pods.owner.name == "auditor"
                asked |= {"scorer_audits": audits} | ({} if audits else {"scorer": stack.scorer.strategy})
            case TrainerSettings():
                asked |= {"trainer_model": stack.trainer.model, "trainer_device": stack.trainer.device}
                asked |= {"trainer_fsdp": stack.trainer.fsdp, "trainer_once": one.pods.owner.kind == "ScaledJob"}
            case OrchestratorSettings():
                asked |= {"train_after_groups": stack.orchestrator.train_after_groups}
                asked |= {"api_hosts": (stack.api.ingress.host,) if stack.api.ingress else ()}
                asked |= {f"objective_{name}": value for name, value in stack.orchestrator.objectives}
        for name, value in asked.items():
            if (is_told := getattr(one.settings, name, value)) != value:
                yield f"{one} is told {PREFIX}{name.upper()}={is_told}; the stack says {value}"


def _same_programs(cluster: Cluster) -> Iterator[str]:
    """Agents, orchestrator and runner must know who answers, the latter two whether there is a manager."""
    stack, roles = cluster.settings, {pods.labels.get(ROLE) for pods in cluster.pods}
    runs = stack.runner is not None and stack.runner.programs is not None
    if (stack.runner is not None) is not ("runner" in roles) or (stack.manager is not None) is not ("manager" in roles):
        yield f"there are pods of {', '.join(sorted(map(str, roles)))}; the stack says otherwise of runner or manager"
    for one in fleet(cluster):
        if one.settings is None or one.pods.labels.get(ROLE) not in ("agent", "orchestrator", "runner"):
            continue
        if (one.settings.programs is not None) is not runs:
            yield f"{one} is{' not' * runs} told of programs, but there is {'a' if runs else 'no'} runner"
        if one.pods.labels.get(ROLE) != "agent" and (one.settings.manager_url is None) is not (stack.manager is None):
            yield f"{one} is {'not ' * bool(stack.manager)}told of a manager"


def _agents(cluster: Cluster) -> Iterator[str]:
    stack = cluster.settings
    found = defaultdict[int, list[str]](list)
    for one in fleet(cluster):
        if _is_agent(one):
            found[number_of(one.pods, stack)].append(one.variables.get("RATCHET_AGENT_ID", "small"))
    for one in our_containers(cluster):
        agents, there = one.variables.get("RATCHET_AGENTS"), found[number_of(one.pods, stack)]
        if agents is not None and sorted(agents.split(",")) != sorted(there):
            yield f"{one} is told of the agents {agents}; there are {', '.join(sorted(there))}"
    for one in fleet(cluster):
        if _is_agent(one) and name_in_fleet(one.pods, stack) != "agent-" + one.variables.get("RATCHET_AGENT_ID", ""):
            yield f"{one} is told that it is the agent {one.variables.get('RATCHET_AGENT_ID')}"


def _is_agent(one: OurContainer) -> bool:
    return one.pods.labels.get(ROLE) == "agent"


def probes_ask_pages_that_are_served(cluster: Cluster) -> Iterator[str]:
    """probes and Prometheus ask pages of the service: whether it turns, and whether it is ready for work"""
    for pods in cluster.pods:
        process = process_of(pods)
        for box in pods.containers:
            ours = process[1] if process and box in pods.spec["containers"] else None
            served = pages(ours.module) if ours else OF_OTHERS
            ready, turns = (f"/{ours.probe}", "/healthz") if ours else ("/health", "/health")
            wanted = {"startupProbe": turns, "livenessProbe": turns, "readinessProbe": ready}
            for name, page in wanted.items():
                asked = box.get(name, {}).get("httpGet", {}).get("path")
                if asked is not None and (asked not in served or asked != page):
                    yield f"{pods}, container {box['name']}: its {name} asks {asked}; it is {page} that says so"
                if process and name in box and asked is None:
                    yield f"{pods}, container {box['name']}: its {name} asks no page"
            yield from (f"{pods}, container {box['name']}: {fault}" for fault in _probe_times(pods, box))
    for monitor in cluster.all("ServiceMonitor"):
        for endpoint in monitor.content["spec"]["endpoints"]:
            page = "/metrics/detailed" if "params" in endpoint else "/metrics"
            if endpoint.get("path") != page or not re.fullmatch(r"([5-9]|[1-5]\d)s", endpoint.get("interval", "")):
                yield f"{monitor} reads {endpoint.get('path')} every {endpoint.get('interval')}: {page}, in 5 to 59 s"


def _probe_times(pods: Pods, box: Mapping[str, Any]) -> Iterator[str]:
    def lasts(probe: str) -> int:
        return int(box[probe].get("periodSeconds", 10)) * int(box[probe].get("failureThreshold", 3))

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in box and not 1 <= box[probe].get("timeoutSeconds", 1) <= box[probe].get("periodSeconds", 10):
            yield f"its {probe} waits longer for an answer than until it asks again"
        if "exec" in box.get(probe, {}) and box[probe].get("timeoutSeconds", 1) < FEWEST_COMMAND_S:
            yield f"its {probe} gives a command {box[probe].get('timeoutSeconds', 1)} s, too little to start in"
    if "livenessProbe" in box and int(box["livenessProbe"].get("failureThreshold", 3)) < 2:
        yield "it is restarted when it misses one answer"
    if "livenessProbe" in box and not WHOLE_BREAK_S[0] // 2 <= lasts("livenessProbe") <= WHOLE_BREAK_S[1]:
        yield f"it is restarted after {lasts('livenessProbe')} s without an answer"
    if "readinessProbe" in box and not 10 <= lasts("readinessProbe") <= READY_WITHIN_S:
        yield f"it counts as ready for {lasts('readinessProbe')} s after it is not"
    if "startupProbe" in box:
        most = pods.owner.content["spec"].get("progressDeadlineSeconds", 3600)
        if not FEWEST_STARTING_S <= lasts("startupProbe") < most:
            yield f"it may take {lasts('startupProbe')} s to start; its rollout is given up after {most} s"
