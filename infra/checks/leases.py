"""Leases of Kubernetes: who leads by one has a token, the right to that one, and a way to the API server."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import our_containers
from infra.checks.flows import policies

RULES = {(("create",), ()), (("get", "update"), ("own",))}


def who_leads_by_a_lease_may_and_nobody_else(cluster: Cluster) -> Iterator[str]:
    """where the stack names the API server, orchestrators lead by a Lease; they alone have a token and a right"""
    server = cluster.settings.api_server
    for one in our_containers(cluster):
        pods, lease = one.pods, one.variables.get("RATCHET_LEASE", "")
        leads = server is not None and pods.labels.get(ROLE) == "orchestrator"
        if lease != (pods.owner.name if leads else ""):
            yield f"{one} is told RATCHET_LEASE={lease!r}; it is {pods.owner.name!r} that is its own, if any"
        if (pods.spec.get("automountServiceAccountToken") is True) is not leads:
            yield f"{pods} has {'no ' * leads}token of the Kubernetes API"
        if set(_rights(cluster, pods)) != (RULES if leads else set()):
            yield f"{pods} may do {sorted(_rights(cluster, pods))} of Leases; it leads by {'one' if leads else 'none'}"
        wanted = {(cidr, server.port) for cidr in server.cidrs} if leads and server else set()
        found = set(_blocks(cluster, pods)) - _database(cluster, pods)
        if found != wanted:
            yield f"{pods} reaches {sorted(found)} of the API server; it must reach {sorted(wanted)}"


def _rights(cluster: Cluster, pods: Pods) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield verbs, and on which Leases, that roles give to the account of these pods."""
    account = pods.spec["serviceAccountName"]
    for binding in cluster.all("RoleBinding"):
        given = binding.content["roleRef"]
        role = cluster.get("Role", given["name"])
        if role is None or given != {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.name}:
            continue
        mine = {"kind": "ServiceAccount", "name": account, "namespace": cluster.settings.namespace}
        for rule in role.content["rules"] if mine in binding.content["subjects"] else ():
            names = tuple("own" if name == pods.owner.name else name for name in rule.get("resourceNames", ()))
            known = (rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"])
            yield (tuple(rule["verbs"]), names) if known else (("other",), tuple(rule["resources"]))


def _database(cluster: Cluster, pods: Pods) -> set[tuple[str, int]]:
    """Return the manager's database outside the cluster, which infra/checks/needed_flows.py looks at."""
    database = cluster.settings.manager and cluster.settings.manager.database
    is_managers = pods.labels.get(ROLE) == "manager"
    return {(database.cidr, database.port)} if database and database.cidr and is_managers else set()


def _blocks(cluster: Cluster, pods: Pods) -> Iterator[tuple[str, int]]:
    """Yield addresses and ports outside the cluster, but for the whole world."""
    for policy in policies(cluster, pods):
        for rule in policy.get("egress", []):
            blocks = [peer["ipBlock"]["cidr"] for peer in rule.get("to", []) if "ipBlock" in peer]
            yield from ((one, port["port"]) for one in blocks if one != "0.0.0.0/0" for port in rule["ports"])
