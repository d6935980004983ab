"""The one component of the inventory: a process with all that Kubernetes must know about it.

Its controller and pods, service account, configuration, secrets, Service, disruption budget, network policy, autoscaler
and ServiceMonitor. All wait for the namespace, and carry the same labels, which every selector is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Secret, Service, ServiceAccount, ServicePortArgs, ServiceSpecArgs
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs
from pulumi_kubernetes.networking.v1 import NetworkPolicy, NetworkPolicySpecArgs
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpecArgs

from infra import autoscaling, network
from infra.controllers import LEADER, control
from infra.foundation import FLEET, NO_WAIT, PART_OF, Foundation
from infra.leases import api_egress, lease_rights
from infra.pods import pod
from infra.process import Kind, Process, Role

INSTANCE = "app.kubernetes.io/instance"


class Workload(pulumi.ComponentResource):
    """`after`: resources that must be there before its pods are of use."""

    def __init__(self, process: Process, foundation: Foundation, *, after: Sequence[pulumi.Resource] = ()) -> None:
        super().__init__("ratchet:kubernetes:Workload", process.name)
        self._process = process
        self._foundation = foundation
        self._opts = pulumi.ResourceOptions(parent=self)
        self.labels = {PART_OF: FLEET, INSTANCE: process.name, network.ROLE_LABEL: process.role.value}
        self._asked = self.labels | LEADER if process.worker else self.labels
        """Labels of the pods that answer: of a group the first."""
        self.address = pulumi.Output.concat(process.name, ".", foundation.namespace, ".svc.cluster.local")
        content_hash = self._configure()
        self._identify()
        self._connect()
        template = pod(process, foundation.settings, self._asked, content_hash)
        opts = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        others = process.worker
        worker = pod(process, foundation.settings, self.labels, content_hash, others) if others else None
        self.controller = control(process, foundation, template, self.labels, opts, worker)
        if process.kind in (Kind.SERVICE, Kind.CLUSTER, Kind.GROUP):
            self._protect_from_drains()
        autoscaling.scale(process, foundation, self._opts)
        self._monitor()
        self.register_outputs({})

    def _configure(self) -> pulumi.Output[str]:
        """Returns a hash of all the process is configured with."""
        process = self._process
        self._config_map(process.name, process.environment)
        self._config_map(f"{process.name}-files", process.files)
        self._secret(process.name, process.secrets)
        self._secret(f"{process.name}-files", process.secret_files)
        secret = pulumi.Output.all(**process.secrets, **process.secret_files)
        plain = repr(sorted({**process.environment, **process.files}.items()))
        digest = secret.apply(
            lambda values: hashlib.sha256((plain + repr(sorted(dict(values).items()))).encode()).hexdigest()
        )
        # A digest of long random passwords gives none of them away.
        return pulumi.Output.unsecret(digest)

    def _config_map(self, name: str, data: Mapping[str, str]) -> None:
        if data:
            metadata = self._foundation.metadata(name, labels=self.labels)
            ConfigMap(f"{name}-config", metadata=metadata, data=dict(data), opts=self._opts)

    def _secret(self, name: str, data: Mapping[str, pulumi.Output[str]]) -> None:
        if data:
            metadata = self._foundation.metadata(name, labels=self.labels)
            Secret(f"{name}-secret", metadata=metadata, string_data=dict(data), opts=self._opts)

    def _identify(self) -> None:
        """Make an account without a token; pods of a process that leads by a Lease ask for theirs."""
        ServiceAccount(
            f"{self._process.name}-account",
            metadata=self._foundation.metadata(self._process.name, labels=self.labels),
            automount_service_account_token=False,
            opts=self._opts,
        )
        lease_rights(self._process, self._foundation, self.labels, self._opts)

    def _connect(self) -> None:
        """Make a Service for open ports, without waiting for it, since no pod may run behind it just now."""
        process, foundation = self._process, self._foundation
        if process.ports:
            self._service(process.name, headless=False)
        if process.kind is Kind.CLUSTER or process.by_pod or (process.machines > 1 and process.worker is None):
            self._service(f"{process.name}-nodes", headless=True)
        NetworkPolicy(
            f"{process.name}-flows",
            metadata=foundation.metadata(process.name, labels=self.labels),
            spec=NetworkPolicySpecArgs(
                pod_selector=LabelSelectorArgs(match_labels=self.labels),
                policy_types=["Ingress", "Egress"],
                ingress=network.ingress(process, foundation.settings),
                egress=network.egress(process, foundation.settings) + api_egress(process, foundation.settings),
            ),
            opts=self._opts,
        )

    def _service(self, name: str, *, headless: bool) -> None:
        """Make a Service. By a headless one the nodes of a cluster find each other before they are ready."""
        labels = self.labels | {"ratchet/headless": "true"} if headless else self.labels
        Service(
            f"{name}-service",
            metadata=self._foundation.metadata(name, labels=labels, annotations=NO_WAIT),
            spec=ServiceSpecArgs(
                selector=self._asked,
                cluster_ip="None" if headless else None,
                publish_not_ready_addresses=headless or None,
                ports=[
                    ServicePortArgs(name=port.name, port=port.number, target_port=port.name)
                    for port in self._process.ports
                ],
            ),
            opts=self._opts,
        )

    def _protect_from_drains(self) -> None:
        """Let drains evict one replica at a time, a broken one any time: a node can always be emptied."""
        PodDisruptionBudget(
            f"{self._process.name}-budget",
            metadata=self._foundation.metadata(self._process.name, labels=self.labels),
            spec=PodDisruptionBudgetSpecArgs(
                max_unavailable=1,
                selector=LabelSelectorArgs(match_labels=self.labels),
                unhealthy_pod_eviction_policy="AlwaysAllow",
            ),
            opts=self._opts,
        )

    def _monitor(self) -> None:
        monitoring, ports = self._foundation.settings.monitoring, self._process.metrics_ports
        if monitoring is None or not ports:
            return
        release = {"release": monitoring.release_label}
        CustomResource(
            f"{self._process.name}-monitor",
            api_version="monitoring.coreos.com/v1",
            kind="ServiceMonitor",
            metadata=self._foundation.metadata(self._process.name, labels=self.labels | release),
            spec={
                "selector": {
                    "matchLabels": self.labels,
                    "matchExpressions": [{"key": "ratchet/headless", "operator": "DoesNotExist"}],
                },
                "endpoints": [*map(self._endpoint, ports), *self._bytes_of_queues()],
            },
            opts=self._opts,
        )

    def _endpoint(self, port: str) -> dict[str, Any]:
        """A vLLM beside an agent is the job `vllm`, by which the alerts know that it may load for long."""
        beside = self._process.beside
        is_beside = beside is not None and port in {one.name for one in beside.ports}
        return _endpoint_at(port, "/metrics", {"job": beside.name} if beside and is_beside else {})

    def _bytes_of_queues(self) -> list[dict[str, Any]]:
        """Return the endpoint of the bytes in each queue; infra/prometheus/prometheus.yml has it as a job."""
        if self._process.role is not Role.BROKER or self._process.metrics is None:
            return []
        kept = {"sourceLabels": ["__name__"], "regex": "rabbitmq_detailed_queue_messages_ready_bytes", "action": "keep"}
        page = _endpoint_at(self._process.metrics, "/metrics/detailed", {"job": "rabbitmq-queues"})
        return [page | {"params": {"family": ["queue_metrics"]}, "metricRelabelings": [kept]}]


def _endpoint_at(port: str, path: str, labels: Mapping[str, str]) -> dict[str, Any]:
    told = {"fleet": "ratchet", **labels}
    relabelings = [{"targetLabel": name, "replacement": value} for name, value in told.items()]
    return {"port": port, "path": path, "interval": "15s", "relabelings": relabelings}
