"""Makes what keeps pods running: a Deployment, a StatefulSet, a LeaderWorkerSet (groups of pods), a ScaledJob (a job
for each message), a CronJob, or one Job."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import (
    Deployment,
    DeploymentSpecArgs,
    DeploymentStrategyArgs,
    RollingUpdateDeploymentArgs,
    StatefulSet,
    StatefulSetSpecArgs,
    StatefulSetUpdateStrategyArgs,
)
from pulumi_kubernetes.batch.v1 import (
    CronJob,
    CronJobSpecArgs,
    Job,
    JobSpecArgs,
    JobTemplateSpecArgs,
    SuccessPolicyArgs,
    SuccessPolicyRuleArgs,
)
from pulumi_kubernetes.core.v1 import (
    PersistentVolumeClaimArgs,
    PersistentVolumeClaimSpecArgs,
    PodTemplateSpecArgs,
    VolumeResourceRequirementsArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.autoscaling import KEDA, is_scaled, triggers
from infra.foundation import Foundation
from infra.process import Kind, OwnDisk, Process
from infra.scheduling import queue_labels

GROUPS = "leaderworkerset.x-k8s.io/v1"
LEADER = {"ratchet/leader": "true"}
"""The label by which a group's first pod is told from its others."""
START_LIMIT_S = 40 * 60
"""A big model is loaded, and may be downloaded first."""


def control(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
    worker: PodTemplateSpecArgs | None = None,
) -> pulumi.CustomResource:
    """Return the controller of these pods; `template` is that of a group's first pod where there is a `worker`."""
    limits = pulumi.CustomTimeouts(create=f"{START_LIMIT_S}s", update=f"{START_LIMIT_S}s")
    opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(custom_timeouts=limits))
    match process.kind:
        case Kind.SERVICE:
            return _deployment(process, foundation, template, labels, opts)
        case Kind.CLUSTER:
            return _stateful_set(process, foundation, template, labels, opts)
        case Kind.GROUP:
            return _group(process, foundation, template, worker, opts)
        case Kind.JOB_PER_MESSAGE:
            return _scaled_job(process, foundation, template, labels, opts)
        case Kind.ONCE:
            return _job(process, foundation, template, labels, opts)
        case Kind.SCHEDULED:
            return _cron_job(process, foundation, template, labels, opts)


def _deployment(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> Deployment:
    """Return the Deployment, without `replicas` where an autoscaler sets them: an update must not set them back."""
    surge, missing = (1, 0) if process.surge else (0, 1)
    return Deployment(
        process.name,
        metadata=foundation.metadata(process.name, labels=labels),
        spec=DeploymentSpecArgs(
            replicas=None if is_scaled(process, foundation) else max(1, process.scale.least),
            selector=LabelSelectorArgs(match_labels=labels),
            revision_history_limit=10,
            progress_deadline_seconds=START_LIMIT_S,
            strategy=DeploymentStrategyArgs(
                type="RollingUpdate",
                rolling_update=RollingUpdateDeploymentArgs(max_surge=surge, max_unavailable=missing),
            ),
            template=template,
        ),
        opts=opts,
    )


def _stateful_set(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> StatefulSet:
    return StatefulSet(
        process.name,
        metadata=foundation.metadata(process.name, labels=labels),
        spec=StatefulSetSpecArgs(
            replicas=process.scale.least,
            service_name=f"{process.name}-nodes",
            selector=LabelSelectorArgs(match_labels=labels),
            pod_management_policy="Parallel",
            update_strategy=StatefulSetUpdateStrategyArgs(type="RollingUpdate"),
            template=template,
            volume_claim_templates=[
                _own_disk(mount.source, labels) for mount in process.main.mounts if isinstance(mount.source, OwnDisk)
            ],
        ),
        opts=opts,
    )


def _group(
    process: Process,
    foundation: Foundation,
    leader: PodTemplateSpecArgs,
    worker: PodTemplateSpecArgs | None,
    opts: pulumi.ResourceOptions,
) -> CustomResource:
    """Return a group of pods. One that dies takes all along, since what is left of a split model answers nothing.

    Each replica has a headless Service of its own, by its first pod's name: one for all would have the process's name.
    """
    return CustomResource(
        process.name,
        api_version=GROUPS,
        kind=Kind.GROUP.value,
        metadata=foundation.metadata(process.name),
        spec={
            "replicas": process.scale.least,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
            "leaderWorkerTemplate": {
                "size": process.machines,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
        opts=opts,
    )


def _own_disk(disk: OwnDisk, labels: dict[str, str]) -> PersistentVolumeClaimArgs:
    return PersistentVolumeClaimArgs(
        metadata=ObjectMetaArgs(name=disk.name, labels=labels),
        spec=PersistentVolumeClaimSpecArgs(
            access_modes=["ReadWriteOnce"],
            storage_class_name=disk.storage_class,
            resources=VolumeResourceRequirementsArgs(requests={"storage": disk.size}),
        ),
    )


def _job_spec(process: Process, template: PodTemplateSpecArgs) -> JobSpecArgs:
    """Return a job whose pod is replaced at most twice when it dies.

    With several machines, each is a pod with a number, and the job is done when number 0 is.
    """
    several = process.machines > 1
    by_first = SuccessPolicyArgs(rules=[SuccessPolicyRuleArgs(succeeded_indexes="0")])
    return JobSpecArgs(
        backoff_limit=2 * process.machines,
        active_deadline_seconds=process.deadline_s,
        parallelism=process.machines,
        completions=process.machines,
        completion_mode="Indexed" if several else None,
        success_policy=by_first if several else None,
        template=template,
    )


def _job(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> Job:
    return Job(
        process.name,
        metadata=foundation.metadata(process.name, labels=labels),
        spec=_job_spec(process, template),
        opts=pulumi.ResourceOptions.merge(
            opts, pulumi.ResourceOptions(delete_before_replace=True, replace_on_changes=["spec"])
        ),
    )


def _cron_job(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> CronJob:
    """Return a job on a schedule, one at a time; a missed one may start up to an hour late."""
    assert process.schedule is not None
    return CronJob(
        process.name,
        metadata=foundation.metadata(process.name, labels=labels),
        spec=CronJobSpecArgs(
            schedule=process.schedule,
            time_zone="Etc/UTC",
            concurrency_policy="Forbid",
            starting_deadline_seconds=3600,
            successful_jobs_history_limit=3,
            failed_jobs_history_limit=3,
            job_template=JobTemplateSpecArgs(spec=_job_spec(process, template)),
        ),
        opts=opts,
    )


def _scaled_job(
    process: Process,
    foundation: Foundation,
    template: PodTemplateSpecArgs,
    labels: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> CustomResource:
    """Return a job for each message. Strategy `accurate`: a message leaves the queue when its job begins.

    A new version of the job waits until the running one has ended.
    """
    assert process.scale.backlog is not None
    return CustomResource(
        process.name,
        api_version=KEDA,
        kind="ScaledJob",
        metadata=foundation.metadata(process.name, labels=labels | queue_labels(process, foundation.settings)),
        spec={
            "jobTargetRef": _job_spec(process, template),
            "pollingInterval": 15,
            "minReplicaCount": 0,
            "maxReplicaCount": process.scale.most,
            "successfulJobsHistoryLimit": 5,
            "failedJobsHistoryLimit": 5,
            "rollout": {"strategy": "gradual"},
            "scalingStrategy": {"strategy": "accurate"},
            "triggers": triggers(process.scale.backlog),
        },
        opts=opts,
    )
