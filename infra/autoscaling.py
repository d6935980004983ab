"""The autoscaler of each process: KEDA by the depth of its queues, or HPA by CPU, never both.

A process without a queue (the manager) has an HPA even where KEDA is installed.

KEDA asks the management interface, whose depth of a queue includes unacked messages: a replica that works on the
last message is not scaled away.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.autoscaling.v2 import (
    CrossVersionObjectReferenceArgs,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpecArgs,
    MetricSpecArgs,
    MetricTargetArgs,
    ResourceMetricSourceArgs,
)

from infra.foundation import Foundation
from infra.process import Backlog, Kind, Process
from infra.settings import Autoscaling

KEDA = "keda.sh/v1alpha1"
BROKER_ACCESS = "broker-depths"
"""The TriggerAuthentication every trigger uses."""
COOL_DOWN_S = 300
TARGET_CPU_PERCENT = 70


def is_scaled(process: Process, foundation: Foundation) -> bool:
    if process.scale.fixed or process.kind is not Kind.SERVICE:
        return False
    return _by_keda(process, foundation) or process.scale.by_cpu


def _by_keda(process: Process, foundation: Foundation) -> bool:
    return foundation.settings.autoscaling is Autoscaling.KEDA and process.scale.backlog is not None


def scale(process: Process, foundation: Foundation, opts: pulumi.ResourceOptions) -> None:
    if not is_scaled(process, foundation):
        return
    if _by_keda(process, foundation):
        assert process.scale.backlog is not None
        _by_backlog(process, process.scale.backlog, foundation, opts)
    else:
        _by_cpu(process, foundation, opts)


def triggers(backlog: Backlog) -> list[dict[str, Any]]:
    """Return a trigger for each queue, by its name on the broker."""
    return [
        {
            "type": "rabbitmq",
            "metadata": {
                "protocol": "http",
                "mode": "QueueLength",
                "queueName": backlog.prefix + queue,
                "value": str(backlog.per_replica),
            },
            "authenticationRef": {"name": BROKER_ACCESS},
        }
        for queue in backlog.queues
    ]


def _by_backlog(process: Process, backlog: Backlog, foundation: Foundation, opts: pulumi.ResourceOptions) -> None:
    """Scale by the depth of the queues. At least one replica stays while the broker does not answer."""
    slowly_down = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": COOL_DOWN_S}}}
    CustomResource(
        f"{process.name}-scale",
        api_version=KEDA,
        kind="ScaledObject",
        metadata=foundation.metadata(process.name),
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": process.name},
            "minReplicaCount": process.scale.least,
            "maxReplicaCount": process.scale.most,
            "pollingInterval": 10,
            "cooldownPeriod": COOL_DOWN_S,
            "fallback": {"failureThreshold": 6, "replicas": max(1, process.scale.least)},
            "advanced": {"horizontalPodAutoscalerConfig": slowly_down},
            "triggers": triggers(backlog),
        },
        opts=opts,
    )


def _by_cpu(process: Process, foundation: Foundation, opts: pulumi.ResourceOptions) -> None:
    utilization = MetricTargetArgs(type="Utilization", average_utilization=TARGET_CPU_PERCENT)
    HorizontalPodAutoscaler(
        f"{process.name}-scale",
        metadata=foundation.metadata(process.name),
        spec=HorizontalPodAutoscalerSpecArgs(
            scale_target_ref=CrossVersionObjectReferenceArgs(
                api_version="apps/v1", kind="Deployment", name=process.name
            ),
            min_replicas=max(1, process.scale.least),
            max_replicas=process.scale.most,
            metrics=[
                MetricSpecArgs(type="Resource", resource=ResourceMetricSourceArgs(name="cpu", target=utilization))
            ],
        ),
        opts=opts,
    )
