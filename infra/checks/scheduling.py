"""Checks of priorities, of the quota, and of the queue that trainings wait in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.settings import UNITS

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ORDER = ("training", "serving", "core")
CORE = ("broker", "orchestrator", "gateway")


def what_serves_goes_first(cluster: Cluster) -> Iterator[str]:
    """with priorities a training gives way to what serves, that to the core, and every pod has a class that is there"""
    classes = {one.name: one.content for one in cluster.all("PriorityClass")}
    if not cluster.settings.scheduling.priorities:
        yield from (f"PriorityClass {name} was not asked for" for name in classes)
        return
    for pods in cluster.pods:
        role = pods.labels.get(ROLE)
        level = "core" if role in CORE else "training" if role == "trainer" else "serving"
        if (found := pods.spec.get("priorityClassName")) != f"{cluster.settings.namespace}-{level}" or not classes.get(
            found
        ):
            yield f"{pods} has the priority {found!r}; it is {level}, or that class is not there"
    values = [classes.get(f"{cluster.settings.namespace}-{level}", {}).get("value", 0) for level in ORDER]
    if not 0 < values[0] < values[1] < values[2] < 10**9:
        yield f"the priorities {dict(zip(ORDER, values, strict=True))} are not in this order"
    for level in ORDER:
        policy = classes.get(f"{cluster.settings.namespace}-{level}", {}).get("preemptionPolicy")
        if policy != (wanted := "Never" if level == "training" else "PreemptLowerPriority"):
            yield f"the preemption of {level} is {policy}; it must be {wanted}"


def trainings_wait_in_the_queue(cluster: Cluster) -> Iterator[str]:
    """where there is a queue of Kueue's, the jobs of trainings carry its label, and nothing else does"""
    for manifest in cluster.manifests:
        labels = manifest.content["metadata"].get("labels") or {}
        wanted = cluster.settings.scheduling.queue if manifest.kind == "ScaledJob" else None
        if labels.get(QUEUE_LABEL) != wanted:
            yield f"{manifest} has the label {QUEUE_LABEL}: {labels.get(QUEUE_LABEL)}; it should be {wanted}"


def the_quota_lets_the_fleet_run(cluster: Cluster) -> Iterator[str]:
    """the quota is what was asked for, and the fleet at its fewest replicas, and one training, fit into it"""
    wanted, quotas = cluster.settings.scheduling.quota, cluster.all("ResourceQuota")
    if len(quotas) != (wanted is not None):
        yield f"there are {len(quotas)} ResourceQuotas; the stack says {wanted}"
    if wanted is None or len(quotas) != 1:
        return
    gpu = cluster.settings.gpu_nodes.resource
    asked = {"requests.cpu": wanted.cpu, "requests.memory": wanted.memory}
    asked |= {f"requests.{gpu}": str(wanted.gpus), "pods": str(wanted.pods)}
    if (hard := quotas[0].content["spec"]["hard"]) != asked:
        yield f"the quota is {hard}; the stack says {asked}"
        return
    needed: defaultdict[str, float] = defaultdict(float)
    for pods in cluster.pods:
        count = _fewest(cluster, pods)
        needed["pods"] += count
        for box in pods.containers:
            for name, value in box["resources"]["requests"].items():
                needed[f"requests.{name}"] += count * _number(value)
    for name, amount in needed.items():
        if amount > _number(hard.get(name, "0")):
            yield f"the quota gives {hard.get(name)} {name}, and the fleet at its fewest needs {amount:g}: name more"


def _fewest(cluster: Cluster, pods: Pods) -> int:
    scalers = cluster.all("ScaledObject", "HorizontalPodAutoscaler")
    specs = [one.content["spec"] for one in scalers if one.content["spec"]["scaleTargetRef"]["name"] == pods.owner.name]
    if specs:
        return max(1, int(specs[0].get("minReplicaCount", specs[0].get("minReplicas", 1))))
    return pods.count


def _number(quantity: str) -> float:
    if quantity.endswith("m"):
        return float(quantity[:-1]) / 1000
    unit = next((unit for unit in UNITS if quantity.endswith(unit)), "")
    return float(quantity.removesuffix(unit)) * UNITS.get(unit, 1)
