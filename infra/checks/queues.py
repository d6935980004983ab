"""Queues and who consumes them: autoscalers against the table of queues, and how KEDA asks the broker for depths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import fleet, our_containers, process_of, topology
from infra.checks.storage import disk_of
from infra.render.manifests import Manifest
from ratchet.bus.topology import work_queue
from services.agent.settings import AgentSettings
from services.runner.settings import RunnerSettings

MANAGEMENT = 15672
TRIGGER = {"protocol": "http", "mode": "QueueLength"}
"""Over HTTP a depth includes what is in hand; over AMQP a replica at work counts as one with nothing to do."""
CALM_S = (60, 900)


def scaled_by_what_it_consumes(cluster: Cluster) -> Iterator[str]:
    """KEDA scales pods by exactly the queues that the fleet's table says they consume"""
    for scaler, pods in _scaled_pods(cluster):
        wanted = _queues_of(cluster, pods)
        asked = [trigger["metadata"].get("queueName") for trigger in scaler.content["spec"]["triggers"]]
        if sorted(asked) != sorted(wanted):
            yield f"{scaler} scales {pods} by {', '.join(asked) or 'no queue'}; it consumes {', '.join(wanted)}"
        for trigger in scaler.content["spec"]["triggers"]:
            yield from (f"{scaler}: {fault}" for fault in _trigger(trigger, "jobTargetRef" in scaler.content["spec"]))
        yield from (f"{scaler}: {fault}" for fault in _pace(scaler.content["spec"]))


def _scaled_pods(cluster: Cluster) -> Iterator[tuple[Manifest, Pods]]:
    for scaler in cluster.all("ScaledObject", "ScaledJob"):
        name = scaler.content["spec"].get("scaleTargetRef", {}).get("name", scaler.name)
        yield from ((scaler, pods) for pods in cluster.pods if pods.owner.name == name)


def _queues_of(cluster: Cluster, pods: Pods) -> list[str]:
    one = next((one for one in our_containers(cluster) if one.pods is pods), None)
    if one is None or one.settings is None:
        return []
    declared, runner = topology(cluster), cluster.settings.runner
    queues, prefix = declared.queues if declared else (), one.settings.namespace
    registered = {work_queue(agent.id, registered=True) for agent in cluster.settings.agents}
    if isinstance(one.settings, RunnerSettings):
        consumers = {f"agent {agent}" for agent in (runner.agents if runner else ())}
        own = [queue.name for queue in queues if consumers & set(queue.consumers) and queue.name not in registered]
        return [prefix + name for name in own + [queue.name for queue in queues if queue.name in registered]]
    if isinstance(one.settings, AgentSettings):
        consumers = {f"agent {one.settings.agent_id}"}
    else:
        process = process_of(pods)
        consumers = {process[0] if process else ""}
    mine = [queue for queue in queues if consumers & set(queue.consumers) and queue.name not in registered]
    return [prefix + queue.name for queue in mine]


def _trigger(trigger: Mapping[str, Any], makes_jobs: bool) -> Iterator[str]:
    metadata = trigger["metadata"]
    for name, value in TRIGGER.items():
        if metadata.get(name) != value:
            yield f"its trigger's {name} is {metadata.get(name)!r}; it must be {value!r}"
    fits = re.fullmatch("1" if makes_jobs else r"[1-9]\d*", str(metadata.get("value")))
    if trigger["type"] != "rabbitmq" or fits is None:
        yield f"its trigger of type {trigger['type']} starts a replica for {metadata.get('value')!r} messages"


def _pace(spec: Mapping[str, Any]) -> Iterator[str]:
    """Asked often enough to follow, let go slowly enough not to swing, and there where the broker can't be asked."""
    if not 5 <= spec.get("pollingInterval", 30) <= 60:
        yield f"it asks every {spec.get('pollingInterval')} s"
    if "jobTargetRef" in spec:
        if spec.get("scalingStrategy", {}).get("strategy") != "accurate":
            yield "its strategy is not `accurate`: a message that a job has in hand would start another"
        if spec.get("rollout", {}).get("strategy") != "gradual":
            yield "a change of it ends the job that runs: its rollout is not `gradual`"
        if spec.get("minReplicaCount") != 0 or not 1 <= spec.get("maxReplicaCount", 100) <= 10:
            yield f"from {spec.get('minReplicaCount')} to {spec.get('maxReplicaCount')} jobs hold GPUs"
        return
    window = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    calm = (spec.get("cooldownPeriod"), window.get("scaleDown", {}).get("stabilizationWindowSeconds"))
    if not all(isinstance(one, int) and CALM_S[0] <= one <= CALM_S[1] for one in calm):
        yield f"replicas go {calm} s after they were needed; {CALM_S[0]} to {CALM_S[1]} leave time to drain"
    fallback = spec.get("fallback", {})
    if not 1 <= fallback.get("replicas", 0) <= max(1, spec.get("minReplicaCount", 0)):
        yield f"where the broker can't be asked there are {fallback.get('replicas')} replicas"
    if not 3 <= fallback.get("failureThreshold", 0) <= 30:
        yield f"it falls back after {fallback.get('failureThreshold')} failures"


def keda_asks_the_management_interface(cluster: Cluster) -> Iterator[str]:
    """KEDA is given the parameter `host`: an HTTP address of the management interface, with a user that only looks"""
    for authentication in cluster.all("TriggerAuthentication"):
        given = authentication.content["spec"]["secretTargetRef"]
        if [one["parameter"] for one in given] != ["host"]:
            yield f"{authentication} gives {[one['parameter'] for one in given]}; KEDA's trigger reads `host`"
        for one in given:
            secret = cluster.get("Secret", one["name"])
            url = str((secret.content.get("stringData") or {}).get(one["key"], "")) if secret else ""
            if not url.startswith(f"http://{cluster.settings.queue_namespace}keda:") or f":{MANAGEMENT}/" not in url:
                yield f"{authentication}: the address in {one['name']} is not that of user keda at port {MANAGEMENT}"


def queues_fit_the_brokers_disk(cluster: Cluster) -> Iterator[str]:
    """whoever declares the queues knows how large the broker's disk is, so that they never fill it"""
    disks = [size for pods in cluster.pods if (size := disk_of(pods)) is not None]
    declaring = {"setup", *(one.pods.labels.get(ROLE) for one in fleet(cluster))}
    for one in our_containers(cluster):
        if one.settings is not None and one.pods.labels.get(ROLE) in declaring:
            bound = one.settings.broker_disk_gb * 1e9 * cluster.settings.shards
            if disks and not 0.9 * float(min(disks)) <= bound <= float(min(disks)):
                yield f"{one} takes the broker's disk to have {bound:g} bytes; it has {min(disks)}"
