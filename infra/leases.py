"""The right to lead by a Lease of Kubernetes, for the one process that does: nothing else here talks to its API."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.networking.v1 import IPBlockArgs, NetworkPolicyEgressRuleArgs, NetworkPolicyPeerArgs
from pulumi_kubernetes.networking.v1 import NetworkPolicyPortArgs as Port
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs, Role, RoleBinding, RoleRefArgs, SubjectArgs

from infra.foundation import Foundation
from infra.process import Process
from infra.settings import StackSettings

GROUP, LEASES, RBAC = "coordination.k8s.io", "leases", "rbac.authorization.k8s.io"


def lease_rights(
    process: Process, foundation: Foundation, labels: dict[str, str], opts: pulumi.ResourceOptions
) -> None:
    """Let the account make Leases, and read and change its own. Who may make one can't be told which."""
    if not process.leads_by_lease:
        return
    name = process.name
    Role(
        f"{name}-lease",
        metadata=foundation.metadata(name, labels=labels),
        rules=[
            PolicyRuleArgs(api_groups=[GROUP], resources=[LEASES], verbs=["create"]),
            PolicyRuleArgs(api_groups=[GROUP], resources=[LEASES], verbs=["get", "update"], resource_names=[name]),
        ],
        opts=opts,
    )
    RoleBinding(
        f"{name}-lease",
        metadata=foundation.metadata(name, labels=labels),
        role_ref=RoleRefArgs(api_group=RBAC, kind="Role", name=name),
        subjects=[SubjectArgs(kind="ServiceAccount", name=name, namespace=foundation.namespace)],
        opts=opts,
    )


def api_egress(process: Process, settings: StackSettings) -> list[NetworkPolicyEgressRuleArgs]:
    server = settings.api_server
    if server is None or not process.leads_by_lease:
        return []
    peers = [NetworkPolicyPeerArgs(ip_block=IPBlockArgs(cidr=cidr)) for cidr in server.cidrs]
    return [NetworkPolicyEgressRuleArgs(to=peers, ports=[Port(protocol="TCP", port=server.port)])]
