"""What must hold of a stack's manifests, beyond each being valid alone. A check yields a sentence for each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from infra.checks import api, flows, names, pods, sandboxes, scaling, schema, security, selectors, storage
from infra.checks.cluster import Cluster
from infra.render.manifests import Manifest

Check = Callable[[Cluster], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    schema.valid_alone,
    names.unique_and_valid,
    names.in_the_namespace_and_after_it,
    names.names_resolve,
    selectors.controllers_select_their_pods,
    selectors.services_reach_pods,
    selectors.the_way_in_leads_somewhere,
    selectors.budgets_protect_and_let_drain,
    selectors.monitors_find_a_port,
    selectors.spread_counts_its_own_pods,
    pods.quantities_parse_and_fit,
    pods.images_are_pinned,
    pods.probes_find_their_port,
    pods.services_listen_where_they_are_asked,
    pods.environment_comes_from_somewhere,
    pods.accounts_exist,
    pods.drain_is_given_time,
    pods.updates_drain,
    pods.gpus_are_on_gpu_nodes,
    security.pods_are_restricted,
    security.secrets_stay_secret,
    sandboxes.sandboxes_are_closed_in,
    sandboxes.programs_are_installed_apart,
    sandboxes.signing_keys_are_out_of_reach,
    api.tokens_are_checked_with_public_keys,
    storage.mounts_and_volumes_agree,
    storage.shared_claims_can_be_shared,
    storage.the_broker_has_room,
    scaling.one_autoscaler_for_each,
    scaling.scaled_within_reason,
    scaling.triggers_can_log_in,
    scaling.jobs_end,
    flows.nothing_is_allowed_by_default,
    flows.flows_are_open_at_both_ends,
    flows.addresses_can_be_reached,
)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.check}: {self.sentence}"


def findings(found: Sequence[Manifest]) -> list[Finding]:
    cluster = Cluster(found)
    return [Finding(check.__name__, sentence) for check in CHECKS for sentence in check(cluster)]
