"""Work that several pods do together: a training by an Indexed Job, a judge by a LeaderWorkerSet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.flows import FREE_PORTS, policies
from infra.checks.vllm import options_of

JOB_FIELDS = {
    "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
    "RATCHET_TRAINER_MACHINE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
}
OF_ONE_POD = {"--model", "--port", "--headless"}
"""Options of vLLM that a group's first pod has and the others lack, or the other way round."""


def pods_of_one_piece_of_work_find_each_other(cluster: Cluster) -> Iterator[str]:
    """a training or a judge has as many pods as the stack says, with a number and one address"""
    stack = cluster.settings
    asked = {"trainer": stack.trainer.machines, "judge": stack.judge.machines if stack.judge else 1}
    for pods in cluster.pods:
        wanted = asked.get(str(pods.labels.get(ROLE)), 1)
        if pods.machines != wanted:
            yield f"{pods} is spread over {pods.machines} pods; the stack says {wanted}"
        found = _ranges(cluster, pods)
        if found != ({FREE_PORTS} if pods.machines > 1 else set()):
            yield f"{pods} may take the ports {sorted(found)}: pods that compute together need {FREE_PORTS}"
        if pods.machines > 1:
            about = _group if pods.owner.kind == "LeaderWorkerSet" else _indexed_job
            yield from (f"{pods}: {fault}" for fault in about(cluster, pods))


def _ranges(cluster: Cluster, pods: Pods) -> set[tuple[int, int]]:
    rules = [
        rule for policy in policies(cluster, pods) for way in ("ingress", "egress") for rule in policy.get(way, [])
    ]
    return {(one["port"], one["endPort"]) for rule in rules for one in rule.get("ports", []) if "endPort" in one}


def _fields(box: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "") for one in box["env"]}


def _indexed_job(cluster: Cluster, pods: Pods) -> Iterator[str]:
    spec, box = pods.owner.content["spec"], pods.spec["containers"][0]
    job, told = spec.get("jobTargetRef", spec), dict(cluster.environment(pods, box))
    if job.get("successPolicy") != {"rules": [{"succeededIndexes": "0"}]}:
        yield "it does not end with its first pod, the only one that knows when nothing is left"
    if job.get("backoffLimit", 6) < 2 * pods.machines:
        yield f"it is given up after {job['backoffLimit']} pods: each of {pods.machines} may die twice"
    service = cluster.get("Service", pods.spec.get("subdomain", ""))
    shape = service.content["spec"] if service else {}
    if shape.get("clusterIP") != "None" or not shape.get("publishNotReadyAddresses"):
        yield f"its pods have no names: {pods.spec.get('subdomain')!r} is no headless Service of pods that start"
    elif cluster.select(shape["selector"]) != [pods]:
        yield f"{service} gives its names to other pods"
    fields, names = _fields(box), [one["name"] for one in box["env"]]
    if JOB_FIELDS.items() - fields.items():
        yield f"it knows its place by {fields}, and needs {JOB_FIELDS}"
    address = re.fullmatch(r"\$\(JOB_NAME\)-0\.([a-z0-9-]+):(\d+)", told.get("RATCHET_TRAINER_MAIN_ADDRESS", ""))
    if not address or address[1] != pods.spec.get("subdomain") or not FREE_PORTS[0] <= int(address[2]) < 32768:
        yield f"its pods meet at {told.get('RATCHET_TRAINER_MAIN_ADDRESS')!r}, which is not the first of them"
    elif names.index("JOB_NAME") > names.index("RATCHET_TRAINER_MAIN_ADDRESS"):
        yield "the name of its job is given after what it stands in"
    if told.get("RATCHET_TRAINER_MACHINES") != str(pods.machines):
        yield f"it is told of {told.get('RATCHET_TRAINER_MACHINES')} machines"


def _group(cluster: Cluster, pods: Pods) -> Iterator[str]:
    spec, box = pods.owner.content["spec"], pods.spec["containers"][0]
    group, options = spec["leaderWorkerTemplate"], options_of(box)
    judge = cluster.settings.judge
    if judge and spec.get("replicas") != judge.replicas:
        yield f"there are {spec.get('replicas')} replicas; the stack says {judge.replicas}"
    if group.get("restartPolicy") != "RecreateGroupOnPodRestart":
        yield "what is left of a group whose pod died waits for it for ever"
    if spec.get("networkConfig", {}).get("subdomainPolicy") != "UniquePerReplica":
        yield "its headless Service would have the name of the Service that clients ask"
    rolling = spec.get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {})
    if (rolling.get("maxUnavailable"), rolling.get("maxSurge")) != (1, 0):
        yield f"it is updated with {rolling}: a new group needs the GPUs of an old one"
    wanted = {
        "--nnodes": str(pods.machines),
        "--node-rank": "$(LWS_WORKER_INDEX)",
        "--master-addr": "$(LWS_LEADER_ADDRESS)",
        "--distributed-executor-backend": "mp",
    }
    if wanted.items() - options.items():
        yield f"its vLLM is told {options}, and needs {wanted}"
    if _fields(box).get("VLLM_HOST_IP") != "status.podIP":
        yield "its vLLM does not know its own address: VLLM_HOST_IP is no field of the pod"
    if pods.works_for_a_leader and (box.get("ports") or any("Probe" in name for name in box)):
        yield "a pod that serves nobody is asked whether it does"
    leader = options_of(group["leaderTemplate"]["spec"]["containers"][0])
    different = {name for name, _ in leader.items() ^ options.items()} - OF_ONE_POD
    if different or options.get("--model") != leader.get("--model"):
        yield f"its pods have different options: {', '.join(sorted(different)) or '--model'}"
