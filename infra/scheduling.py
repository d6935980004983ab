"""Makes the quota of the namespace and the classes of priority.

Kueue decides which training gets a GPU: its jobs carry the label of a queue that the site made (`scheduling.queue`).
What serves users is not queued, since it must run.
"""

from __future__ import annotations

from pulumi_kubernetes.core.v1 import ResourceQuota, ResourceQuotaSpecArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.scheduling.v1 import PriorityClass

from infra.foundation import FLEET, PART_OF, Foundation
from infra.process import Kind, Process, Role
from infra.settings import StackSettings

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITIES = {"core": 10_000, "serving": 1_000, "training": 100}
"""A training gives way to what answers users; both give way to what no task is answered without."""
CORE = (Role.BROKER, Role.ORCHESTRATOR, Role.GATEWAY)


def scheduling(foundation: Foundation) -> None:
    wanted = foundation.settings.scheduling
    for name, value in PRIORITIES.items() if wanted.priorities else ():
        PriorityClass(
            f"priority-{name}",
            metadata=ObjectMetaArgs(name=f"{foundation.settings.namespace}-{name}", labels={PART_OF: FLEET}),
            value=value,
            preemption_policy="Never" if name == "training" else "PreemptLowerPriority",
        )
    if wanted.quota is not None:
        hard = {
            "requests.cpu": wanted.quota.cpu,
            "requests.memory": wanted.quota.memory,
            f"requests.{foundation.settings.gpu_nodes.resource}": str(wanted.quota.gpus),
            "pods": str(wanted.quota.pods),
        }
        ResourceQuota("quota", metadata=foundation.metadata("quota"), spec=ResourceQuotaSpecArgs(hard=hard))


def priority_of(process: Process, settings: StackSettings) -> str | None:
    if not settings.scheduling.priorities:
        return None
    level = "core" if process.role in CORE else "training" if process.role is Role.TRAINER else "serving"
    return f"{settings.namespace}-{level}"


def queue_labels(process: Process, settings: StackSettings) -> dict[str, str]:
    """Labels of a job for each request. KEDA gives each job those of its ScaledJob, which is where Kueue looks."""
    queue = settings.scheduling.queue
    return {QUEUE_LABEL: queue} if queue and process.kind is Kind.JOB_PER_MESSAGE else {}
