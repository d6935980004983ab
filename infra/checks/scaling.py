"""Autoscalers: at most one for each controller, at something that exists, within bounds that make sense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import ROLE, Cluster
from infra.checks.fleets import name_in_fleet
from infra.render.manifests import Manifest
from infra.settings import Autoscaling

NEVER_NONE = ("orchestrator", "broker", "judge", "agent", "runner", "manager")
"""Roles of which one must be there. The agents: a candidate is validated by the replicas there are."""

FIXED = {"orchestrator": 2, "gateway": 2, "trainer": 1, "operator": 1, "tokens": 1}
"""Replicas of what is not scaled: two where one stands by for when a node is emptied, else one."""


def one_autoscaler_for_each(cluster: Cluster) -> Iterator[str]:
    """no Deployment has two autoscalers (HPA and KEDA would fight), and each has its target and says how many"""
    targets = [(scaler, *_target(scaler)) for scaler in cluster.all("ScaledObject", "HorizontalPodAutoscaler")]
    counts = Counter((kind, name) for _, kind, name in targets)
    yield from (f"{kind} {name} has {count} autoscalers" for (kind, name), count in counts.items() if count > 1)
    for scaler, kind, name in targets:
        target = cluster.get(kind, name)
        spec = scaler.content["spec"]
        # KEDA takes a Deployment where nothing is said, an HPA looks for it in the core API then.
        version = spec["scaleTargetRef"].get("apiVersion", "apps/v1" if scaler.kind == "ScaledObject" else None)
        if version != "apps/v1":
            yield f"{scaler} looks for {kind} {name} in the API {version}"
        if not spec.keys() & {"minReplicaCount", "minReplicas"} or not spec.keys() & {"maxReplicaCount", "maxReplicas"}:
            yield f"{scaler} doesn't say how few or how many replicas there may be"
        if target is None:
            yield f"{scaler} scales {kind} {name}, which is not there"
        elif "replicas" in target.content["spec"]:
            yield f"{target} says how many replicas it has, but {scaler} decides that: each update would set them back"


def scaled_within_reason(cluster: Cluster) -> Iterator[str]:
    """from fewer to more, none only where that is right, the broker in odd numbers, and the orchestrator never"""
    for scaler in cluster.all("ScaledObject", "HorizontalPodAutoscaler"):
        least, most = _bounds(scaler)
        role = _role(cluster, scaler)
        if least > most:
            yield f"{scaler} scales from {least} to {most}"
        if role in NEVER_NONE and least < 1:
            yield f"{scaler} lets {role} go to none"
        if role == "orchestrator":
            yield f"{scaler} scales the orchestrator: one leads, one stands by, and more do nothing"
    for pods in cluster.pods:
        replicas = pods.owner.content["spec"].get("replicas")
        wanted = FIXED.get(str(pods.labels.get(ROLE)), replicas)
        if pods.owner.kind == "Deployment" and replicas != wanted:
            yield f"{pods} has {replicas} replicas; there must be {wanted}"
        if pods.owner.kind == "StatefulSet" and (replicas or 0) % 2 == 0:
            yield f"{pods} has {replicas} nodes: an even number has no majority when split in halves"


def what_may_grow_is_scaled(cluster: Cluster) -> Iterator[str]:
    """what the stack lets grow has an autoscaler with its bounds; on a GPU only by KEDA, since its CPU says nothing"""
    stack = cluster.settings
    bounds = {_target(scaler)[1]: _bounds(scaler) for scaler in cluster.all("ScaledObject", "HorizontalPodAutoscaler")}
    several = {"scorer": stack.scorer, "auditor": stack.auditor, "runner": stack.runner, "manager": stack.manager}
    stated = {f"agent-{one.id}": one for one in stack.agents} | {name: one for name, one in several.items() if one}
    by_keda = stack.autoscaling == Autoscaling.KEDA
    for pods in cluster.pods:
        one = stated.get(name_in_fleet(pods, stack))
        if one is None or (pods.gpus and not by_keda):
            continue
        fewest = one.min_replicas if by_keda and pods.labels.get(ROLE) != "manager" else max(1, one.min_replicas)
        wanted = (fewest, one.max_replicas) if one.min_replicas < one.max_replicas else None
        if (found := bounds.get(pods.owner.name)) != wanted:
            yield f"{pods} is scaled within {found or 'no bounds'}; the stack says {wanted or 'that it is not'}"


def triggers_can_log_in(cluster: Cluster) -> Iterator[str]:
    """each trigger's authentication exists, and the key of the Secret it names"""
    for scaler in cluster.all("ScaledObject", "ScaledJob"):
        for trigger in scaler.content["spec"]["triggers"]:
            name = trigger.get("authenticationRef", {}).get("name")
            if name is None or cluster.get("TriggerAuthentication", name) is None:
                yield f"{scaler}: its trigger logs in by TriggerAuthentication {name!r}, which is not there"
    for authentication in cluster.all("TriggerAuthentication"):
        for reference in authentication.content["spec"]["secretTargetRef"]:
            keys = cluster.keys("Secret", reference["name"])
            if keys is None or reference["key"] not in keys:
                yield f"{authentication}: Secret {reference['name']} has no key {reference['key']!r}"


def jobs_end(cluster: Cluster) -> Iterator[str]:
    """a job ends: it is not restarted in place for ever, has a deadline, and holds its GPU for one request only"""
    for manifest in cluster.all("Job", "ScaledJob", "CronJob"):
        spec = manifest.content["spec"]
        job = spec["jobTemplate"]["spec"] if manifest.kind == "CronJob" else spec.get("jobTargetRef", spec)
        if manifest.kind == "CronJob" and spec.get("concurrencyPolicy") != "Forbid":
            yield f"{manifest} may begin while the one before it is at work"
        if job["template"]["spec"].get("restartPolicy") not in ("Never", "OnFailure"):
            yield f"{manifest}: its pods are restarted for ever"
        machines = job.get("parallelism", 1)
        if not 1 <= job.get("backoffLimit", 6) <= 6 * machines:
            yield f"{manifest} is tried again {job.get('backoffLimit')} times: a pod that died must be taken up again"
        if job.get("completions", 1) != machines or (machines > 1 and job.get("completionMode") != "Indexed"):
            yield f"{manifest} runs more than one pod for one piece of work, and gives them no numbers"
        if not job.get("activeDeadlineSeconds"):
            yield f"{manifest} has no deadline: a job that hangs would hold its GPU for ever"
    trainers = [pods.owner for pods in cluster.pods if pods.labels.get(ROLE) == "trainer"]
    if len(trainers) != 1:
        yield f"there are {len(trainers)} trainers ({', '.join(map(str, trainers))}); there must be one"
    for pods in cluster.pods:
        told = {name for box in pods.containers for name, _ in cluster.environment(pods, box)}
        if pods.owner.kind == "ScaledJob" and "RATCHET_TRAINER_ONCE" not in told:
            yield f"{pods} does not end after one request: it is not told RATCHET_TRAINER_ONCE"


def cpu_is_compared_with_a_share(cluster: Cluster) -> Iterator[str]:
    """an HPA compares the CPU used with 30 to 90 % of what was asked for"""
    for scaler in cluster.all("HorizontalPodAutoscaler"):
        metrics = scaler.content["spec"].get("metrics", [])
        if not metrics:
            yield f"{scaler} compares nothing that it names"
        for metric in metrics:
            target = metric.get("resource", {}).get("target", {})
            share = target.get("averageUtilization", 0)
            if (metric["type"], metric.get("resource", {}).get("name"), target.get("type")) != (
                "Resource",
                "cpu",
                "Utilization",
            ) or not 30 <= share <= 90:
                yield f"{scaler} compares {metric['type']} {metric.get('resource')}"


def _target(scaler: Manifest) -> tuple[str, str]:
    reference = scaler.content["spec"]["scaleTargetRef"]
    return reference.get("kind", "Deployment"), reference["name"]


def _role(cluster: Cluster, scaler: Manifest) -> str | None:
    """Return the role of the pods that it scales."""
    owners = ((pods.owner.kind, pods.owner.name, pods.labels.get(ROLE)) for pods in cluster.pods)
    return next((role for kind, name, role in owners if (kind, name) == _target(scaler)), None)


def _bounds(scaler: Manifest) -> tuple[int, int]:
    """Return the fewest and the most replicas; `one_autoscaler_for_each` finds who says neither."""
    spec: Mapping[str, Any] = scaler.content["spec"]
    replicas = "ReplicaCount" if scaler.kind == "ScaledObject" else "Replicas"
    return spec[f"min{replicas}"], spec[f"max{replicas}"]
