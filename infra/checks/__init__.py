"""The checks of a stack's manifests, of each alone and of all together. A check yields a sentence for each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from infra.checks import (
    api,
    broker,
    fleets,
    flows,
    folders,
    leases,
    machines,
    names,
    needed_flows,
    pods,
    processes,
    queues,
    sandboxes,
    scaling,
    scheduling,
    schema,
    security,
    selectors,
    storage,
    vllm,
)
from infra.checks.cluster import Cluster
from infra.checks.rotation import new_secrets_replace_their_pods, random_values_are_long_and_made_anew
from infra.render.manifests import Manifests

Check = Callable[[Cluster], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    schema.valid_alone,
    schema.words_are_kubernetes_own,
    names.unique_and_valid,
    names.in_the_namespace_and_after_it,
    names.names_resolve,
    names.nobody_is_waited_for,
    selectors.controllers_select_their_pods,
    selectors.services_reach_pods,
    selectors.the_way_in_leads_somewhere,
    selectors.budgets_protect_and_let_drain,
    selectors.monitors_find_a_port,
    selectors.spread_counts_its_own_pods,
    pods.quantities_parse_and_fit,
    pods.images_are_pinned,
    pods.images_can_be_pulled,
    pods.homes_can_be_written,
    pods.probes_find_their_port,
    pods.services_listen_where_they_are_asked,
    pods.environment_comes_from_somewhere,
    pods.accounts_exist,
    pods.drain_is_given_time,
    pods.updates_drain,
    pods.gpus_are_on_gpu_nodes,
    security.pods_are_restricted,
    security.secrets_stay_secret,
    random_values_are_long_and_made_anew,
    leases.who_leads_by_a_lease_may_and_nobody_else,
    sandboxes.sandboxes_are_closed_in,
    sandboxes.programs_are_installed_apart,
    sandboxes.signing_keys_are_out_of_reach,
    sandboxes.tokens_are_renewed_in_time,
    api.tokens_are_checked_with_public_keys,
    api.keys_are_what_the_services_read,
    storage.mounts_and_volumes_agree,
    storage.shared_claims_can_be_shared,
    storage.claims_have_the_size_asked_for,
    storage.backups_are_encrypted_and_pruned,
    storage.the_broker_has_room,
    storage.what_is_kept_fits_its_claim,
    scaling.one_autoscaler_for_each,
    scaling.scaled_within_reason,
    scaling.what_may_grow_is_scaled,
    scaling.triggers_can_log_in,
    scaling.jobs_end,
    flows.nothing_is_allowed_by_default,
    flows.flows_are_open_at_both_ends,
    flows.addresses_can_be_reached,
    needed_flows.who_is_asked_is_reached_and_nobody_else,
    needed_flows.the_world_is_reached_by_whom_it_must,
    needed_flows.the_manager_reaches_its_database,
    needed_flows.other_namespaces_reach_what_is_for_them,
    needed_flows.whoever_has_metrics_is_read,
    processes.the_fleet_is_whole,
    processes.images_hold_what_they_run,
    processes.settings_are_known_and_agree,
    processes.what_the_stack_asks_for_is_told,
    processes.probes_ask_pages_that_are_served,
    folders.folders_are_there_with_their_rights,
    folders.sidecars_see_what_their_agent_names,
    folders.claims_keep_what_cannot_be_made_again,
    pods.containers_may_use_their_volumes,
    pods.pods_are_placed,
    pods.gpus_are_used,
    vllm.vllm_serves_what_it_must,
    machines.pods_of_one_piece_of_work_find_each_other,
    queues.scaled_by_what_it_consumes,
    queues.keda_asks_the_management_interface,
    queues.queues_fit_the_brokers_disk,
    scaling.cpu_is_compared_with_a_share,
    broker.the_broker_keeps_its_data,
    broker.users_are_those_of_the_table,
    broker.the_bytes_of_queues_are_read,
    fleets.fleets_are_whole_and_decide_as_one,
    names.pods_start_after_what_they_need,
    scheduling.what_serves_goes_first,
    scheduling.trainings_wait_in_the_queue,
    scheduling.the_quota_lets_the_fleet_run,
)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.check}: {self.sentence}"


def findings(
    found: Manifests, with_other_passwords: Manifests | None = None, checks: Iterable[Check] = CHECKS
) -> list[Finding]:
    """With a second rendering, made with other passwords, it is also seen whether a new secret reaches its pods."""
    cluster = Cluster(found)
    faults = [Finding(check.__name__, sentence) for check in checks for sentence in _sentences(check, cluster)]
    if with_other_passwords is None:
        return faults
    unseen = new_secrets_replace_their_pods(found, with_other_passwords)
    return [*faults, *(Finding(new_secrets_replace_their_pods.__name__, sentence) for sentence in unseen)]


def _sentences(check: Check, cluster: Cluster) -> Iterator[str]:
    """A manifest that a check can't read has a fault, too."""
    try:
        yield from check(cluster)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        yield f"a manifest can't be read: {type(error).__name__}: {error}"
