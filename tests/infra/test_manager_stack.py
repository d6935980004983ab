"""The manager in a stack: over a database of the site, scaled by CPU also with KEDA, reached by whom it is for."""

from __future__ import annotations

from typing import Any

from infra.checks import findings
from infra.render.manifests import Manifests, manifests
from infra.render.recording import record
from tests.infra.seeded_mistakes import with_manager
from tests.infra.test_stacks import names, one


def egress(found: Manifests, name: str) -> list[tuple[dict[str, Any], int]]:
    rules = one(found, "NetworkPolicy", name)["spec"]["egress"]
    return [(peer, port["port"]) for rule in rules for peer in rule["to"] for port in rule["ports"]]


def test_several_managers_share_a_database_of_the_site_and_scale_by_cpu_beside_keda(jobs: Manifests) -> None:
    assert [str(finding) for finding in findings(jobs)] == []
    pod = one(jobs, "Deployment", "manager")["spec"]["template"]["spec"]
    (box,) = pod["containers"]
    told = one(jobs, "ConfigMap", "manager")["data"]

    assert names(jobs, "HorizontalPodAutoscaler") == {"manager"}
    scaler = one(jobs, "HorizontalPodAutoscaler", "manager")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 4)
    assert {"name": "RATCHET_MANAGER_DB", "valueFrom": {"secretKeyRef": {"name": "jobs-db", "key": "url"}}} in box[
        "env"
    ]
    assert box["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert box["image"] == "registry.example.com/ratchet/ratchet-manager:0.2.0"
    assert one(jobs, "ConfigMap", "manager-files")["data"] == {"prices.toml": 'currency = "EUR"'}
    assert told["RATCHET_PRICES"] == "/etc/ratchet/prices/prices.toml"
    database = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "databases"}}}
    assert (database, 5432) in egress(jobs, "manager")


def test_orchestrators_and_runners_ask_the_manager_and_registered_agents_scale_the_runners(jobs: Manifests) -> None:
    manager = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "manager"}}}
    asking = {name for name in names(jobs, "NetworkPolicy") - {"default-deny"} if (manager, 8780) in _sent(jobs, name)}
    triggers = one(jobs, "ScaledObject", "runner")["spec"]["triggers"]

    assert asking == {"orchestrator", "runner"}
    assert one(jobs, "ConfigMap", "runner")["data"]["RATCHET_MANAGER_URL"] == "http://manager:8780"
    assert [one["metadata"]["queueName"] for one in triggers] == ["work.small.programs"]
    assert "programs" not in names(jobs, "Job")
    assert "environments" not in names(jobs, "PersistentVolumeClaim")


def _sent(found: Manifests, name: str) -> list[tuple[dict[str, Any], int]]:
    return egress(found, name) if one(found, "NetworkPolicy", name)["spec"].get("egress") else []


def test_a_database_outside_the_cluster_is_reached_by_its_addresses_alone() -> None:
    configuration = with_manager()
    configuration["ratchet:fleet"]["manager"] = {"database": {"urlSecret": "db", "cidr": "10.3.0.0/24", "port": 5433}}

    found = manifests(record("prod", configuration))

    assert [str(finding) for finding in findings(found)] == []
    assert ({"ipBlock": {"cidr": "10.3.0.0/24"}}, 5433) in egress(found, "manager")
    assert names(found, "ConfigMap") & {"manager-files"} == set()


def test_a_fleet_without_a_manager_has_none_of_this(prod: Manifests) -> None:
    text = str([manifest.content for manifest in prod if not manifest.name.startswith("dashboard")])

    assert "RATCHET_MANAGER" not in text and "8780" not in text
    assert names(prod, "HorizontalPodAutoscaler") == set()
