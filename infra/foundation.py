"""The ground the fleet stands on: the namespace, the rule that nothing may talk to anything, and the shared claims."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.core.v1 import (
    Namespace,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpecArgs,
    VolumeResourceRequirementsArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs
from pulumi_kubernetes.networking.v1 import NetworkPolicy, NetworkPolicySpecArgs

from infra.settings import StackSettings

LOGS, ADAPTERS, MODELS, AUDIT, DECISION_KEYS = "logs", "adapters", "models", "audit", "decision-keys"
ROLLOUTS, RUNNER_TOKEN, ENVIRONMENTS = "rollouts", "runner-token", "environments"
CAN_BE_MADE_AGAIN = (MODELS, ROLLOUTS, RUNNER_TOKEN, ENVIRONMENTS)
KEYS_SIZE = "16Mi"
PART_OF = "app.kubernetes.io/part-of"
FLEET = "ratchet"
NO_WAIT = {"pulumi.com/skipAwait": "true"}
ONE_NODE = "ratchet/one-node"
"""Annotation of a claim that several pods share though it is ReadWriteOnce: they are all on one node."""


class Foundation:
    """`settings`, and the namespace as an output: what is made in it waits for it."""

    def __init__(self, settings: StackSettings) -> None:
        self.settings = settings
        pod_security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
        namespace = Namespace(
            "namespace", metadata=ObjectMetaArgs(name=settings.namespace, labels={PART_OF: FLEET} | pod_security)
        )
        self.namespace: pulumi.Output[str] = namespace.metadata.apply(lambda metadata: str(metadata.name))
        NetworkPolicy(
            "default-deny",
            metadata=self.metadata("default-deny"),
            spec=NetworkPolicySpecArgs(pod_selector=LabelSelectorArgs(), policy_types=["Ingress", "Egress"]),
        )
        for name, size in self._claims(settings):
            self._claim(name, size)

    def metadata(
        self, name: str, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
    ) -> ObjectMetaArgs:
        return ObjectMetaArgs(
            name=name, namespace=self.namespace, labels={PART_OF: FLEET} | (labels or {}), annotations=annotations
        )

    @staticmethod
    def _claims(settings: StackSettings) -> tuple[tuple[str, str], ...]:
        storage = settings.storage
        of_runner = ((ROLLOUTS, storage.rollouts), (RUNNER_TOKEN, KEYS_SIZE))
        of_programs = ((ENVIRONMENTS, storage.environments),)
        return (
            (LOGS, storage.logs),
            (ADAPTERS, storage.adapters),
            (MODELS, storage.models),
            (AUDIT, storage.audit),
            (DECISION_KEYS, KEYS_SIZE),
            *(of_runner if settings.runner else ()),
            *(of_programs if settings.runner and settings.runner.programs else ()),
        )

    def _claim(self, name: str, size: str) -> None:
        """Protected where it holds what can't be made again; a class that binds late is not waited for."""
        storage = self.settings.storage
        one_node = {ONE_NODE: "true"} if storage.access_mode == "ReadWriteOnce" else {}
        PersistentVolumeClaim(
            f"{name}-claim",
            metadata=self.metadata(name, annotations=NO_WAIT | one_node),
            spec=PersistentVolumeClaimSpecArgs(
                access_modes=[storage.access_mode],
                storage_class_name=storage.class_name,
                resources=VolumeResourceRequirementsArgs(requests={"storage": size}),
            ),
            opts=pulumi.ResourceOptions(
                protect=name not in CAN_BE_MADE_AGAIN and storage.access_mode == "ReadWriteMany"
            ),
        )
