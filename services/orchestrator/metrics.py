"""The counters of the orchestrator, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from prometheus_client import Counter, Gauge, Histogram

from ratchet.experiments.experiment import Experiment
from ratchet.logs.names import is_own
from ratchet.service.metrics import Count, LoopCounter, LoopHistogram, Series
from schemas.messages.result import ResultStatus
from schemas.messages.reward import ScoreStatus
from schemas.messages.training import AdapterTrained
from schemas.records.decision import Move
from schemas.records.evidence import Change
from schemas.records.interaction import Interaction
from schemas.records.registry import AgentAdapters

LATENCY_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
SCORE_BUCKETS = tuple(step / 10 for step in range(11))

tasks_admitted = LoopCounter("ratchet_tasks_admitted_total", "Tasks admitted.", ["agent"])
tasks_refused = Counter("ratchet_tasks_refused_total", "Tasks that were not valid.")
tasks_repeated = Counter("ratchet_tasks_repeated_total", "Tasks whose id was known already.")
tasks_closed = LoopCounter("ratchet_tasks_closed_total", "Tasks with a Result.", ["agent", "status"])
own_tasks_closed = LoopCounter(
    "ratchet_own_tasks_closed_total",
    "Of these the fleet's own, whose Results no user gets: golden and replayed tasks, anchors and evaluations.",
    ["agent", "status"],
)
objective_tasks = LoopCounter(
    "ratchet_objective_tasks_total", "Users' tasks that count for an objective.", ["agent", "objective"]
)
objective_missed = LoopCounter(
    "ratchet_objective_missed_total",
    "Of these, those that missed it: not answered (availability), or answered late (latency).",
    ["agent", "objective"],
)
objective_budget = Gauge("ratchet_objective_budget", "Share of the tasks that may miss the objective.", ["objective"])
results_untold = Counter("ratchet_results_untold_total", "Results whose users could not be told, after several tries.")
samples_logged = LoopCounter("ratchet_samples_logged_total", "Lines in the log.", ["agent", "adapter_version"])
samples_unscored = Counter("ratchet_samples_unscored_total", "Samples without a score.", ["agent", "status"])
sample_score = LoopHistogram("ratchet_sample_score", "Scores.", ["agent", "adapter_version"], buckets=SCORE_BUCKETS)
quality = Gauge(
    "ratchet_quality",
    "By version, since the start: the score of the answer served, of a single answer, and distinct answers in a group; "
    "the mean, and the ends of its 95 % interval.",
    ["agent", "adapter_version", "measure", "statistic"],
)
samples_now = Gauge("ratchet_samples", "Answers sampled for a task that does not say.", ["agent"])
samples_saved = LoopCounter("ratchet_samples_saved_total", "Answers that were proved not to be needed.", ["agent"])
tokens_saved = LoopCounter("ratchet_tokens_saved_total", "Tokens these would have had, on average.", ["agent"])
feedback_score = Histogram(
    "ratchet_feedback_score", "Scores by applications.", ["agent", "adapter_version"], buckets=SCORE_BUCKETS
)
stage_seconds = LoopHistogram(
    "ratchet_stage_seconds", "Seconds a user's task spent in a stage.", ["stage"], buckets=LATENCY_BUCKETS
)
approvals = LoopCounter(
    "ratchet_approvals_total", "Answers to what programs asked people; expired: nobody answered in time.", ["decision"]
)
open_approvals = Gauge("ratchet_open_approvals", "Questions of programs that wait for a person.")
open_tasks = Gauge("ratchet_open_tasks", "Tasks admitted and not yet closed.")
oldest_open_task = Gauge("ratchet_oldest_open_task_seconds", "Age of the oldest open task; 0 if none is open.")
is_active = Gauge("ratchet_orchestrator_active", "1 where this orchestrator works, 0 where it is the standby.")

useful_groups = Gauge("ratchet_useful_groups", "Groups to learn from since the last training.", ["agent"])
trainings = Counter("ratchet_trainings_total", "Training runs that ended.", ["agent", "status"])
primary_version = Gauge("ratchet_primary_adapter", "1 for the version that is the primary.", ["agent", "version"])
primary_program = Gauge(
    "ratchet_primary_program",
    "1 for the program that answers by default; no series where none does.",
    ["agent", "program"],
)
experiment_e_value = Gauge("ratchet_experiment_e_value", "Evidence in the running experiment.", ["agent", "test"])
experiment_threshold = Gauge(
    "ratchet_experiment_threshold", "E-value that decides the running experiment: 1 / alpha.", ["agent"]
)
experiment_share = Gauge("ratchet_experiment_share", "Share of the treatment in the running experiment.", ["agent"])
experiment_units = Gauge("ratchet_experiment_units", "Finished units of the running experiment.", ["agent", "arm"])
watch_e_value = Gauge("ratchet_watch_e_value", "Evidence that the primary is harmful.", ["agent"])
watch_threshold = Gauge("ratchet_watch_threshold", "E-value at which the watch rolls back the primary.", ["agent"])
since_base = Gauge(
    "ratchet_primary_since_base",
    "What the primary has changed since v1.0.0: differences of score, success and refused, factors of length and "
    "latency.",
    ["agent", "measure"],
)
judge_drift = Gauge("ratchet_judge_drift", "Mean change of the anchors' scores since they were taken.", ["agent"])
audits = Counter(
    "ratchet_audits_total", "Tasks the auditor was to see, by whether it scored them.", ["agent", "outcome"]
)
audit_gap = Gauge("ratchet_audit_gap", "Mean of the scorer's scores minus the auditor's, newest 200 audits.", ["agent"])
audit_discordance = Gauge(
    "ratchet_audit_discordance",
    "How often scorer and auditor order two answers differently, newest 200 audits: 0 never, 0.5 as by chance.",
    ["agent"],
)
judge_noise = Gauge("ratchet_judge_noise", "Standard deviation of the anchors' changes around their mean.", ["agent"])
judge_distrusted = Gauge("ratchet_judge_distrusted", "1 while the scorer has drifted and training waits.", ["agent"])
swap_seconds = Gauge("ratchet_swap_seconds", "From a decision to the first answer of the new primary.", ["agent"])
cascade_share = Gauge("ratchet_cascade_share", "Share of the tasks that the small model may answer.", ["agent"])
cascade_tasks = Counter(
    "ratchet_cascade_tasks_total", "Routed tasks, by whose answer the user got: small, big or nobody.", ["agent", "by"]
)
cascade_cost = Gauge(
    "ratchet_cascade_cost",
    "Cost since the cascade began, of the small and the big model, and what the big one alone would have cost.",
    ["agent", "model"],
)
cascade_e_value = Gauge("ratchet_cascade_e_value", "Evidence on the cascade: not_worse, worse.", ["agent", "test"])
cascade_threshold = Gauge("ratchet_cascade_threshold", "E-value at which the small model's share rises.", ["agent"])
decisions = Counter("ratchet_decisions_total", "Decisions about adapters.", ["agent", "move"])

Objective = Literal["availability", "latency"]
MOVES: tuple[str, ...] = tuple(kind.model_fields["kind"].default for kind in get_args(get_args(Move)[0]))

_in_queue, _generating, _in_score_queue, _scoring, _in_all = map(
    stage_seconds.labels, ("queue", "generate", "score_queue", "score", "total")
)


@cache
def _of_version(agent_id: str, adapter_version: str) -> tuple[Count, Series]:
    """The two series of a version. Looking labels up costs more than counting."""
    return samples_logged.labels(agent_id, adapter_version), sample_score.labels(agent_id, adapter_version)


def expect(agent_id: str) -> None:
    """Series of what happens rarely, from 0 on: to Prometheus a series that begins at 1 has never risen."""
    for move in MOVES:
        decisions.labels(agent_id, move)
    for how in get_args(AdapterTrained.model_fields["status"].annotation):
        trainings.labels(agent_id, how)
    for status in get_args(ResultStatus):
        tasks_closed.labels(agent_id, status)
    tasks_admitted.labels(agent_id)
    for objective in get_args(Objective):
        objective_tasks.labels(agent_id, objective)
        objective_missed.labels(agent_id, objective)
    for score_status in get_args(ScoreStatus):
        if score_status != "ok":
            samples_unscored.labels(agent_id, score_status)


@cache
def counter_of_admitted(agent_id: str) -> Count:
    return tasks_admitted.labels(agent_id)


def count_closed(agent_id: str, status: str, *, own: bool) -> None:
    counter_of_closed(agent_id, status).inc()
    if own:
        own_tasks_closed.labels(agent_id, status).inc()


@dataclass(frozen=True, slots=True)
class Objectives:
    """Shares of the tasks: answered at all (`availability`), and of these within `latency_s` (`latency`)."""

    availability: float
    latency: float
    latency_s: float

    def show_budgets(self) -> None:
        """Tell Prometheus which share may be missed. An objective without a budget never raises an alert."""
        objective_budget.labels("availability").set(1 - self.availability)
        if self.latency_s:
            objective_budget.labels("latency").set(1 - self.latency)

    def count(self, agent_id: str, status: ResultStatus, total_s: float) -> None:
        """Count a user's task that was closed `total_s` seconds after its admission."""
        if status == "cancelled":
            return
        _count_objective(agent_id, "availability", missed=status != "ok")
        if status == "ok" and self.latency_s:
            _count_objective(agent_id, "latency", missed=total_s > self.latency_s)


def _count_objective(agent_id: str, objective: Objective, *, missed: bool) -> None:
    objective_tasks.labels(agent_id, objective).inc()
    objective_missed.labels(agent_id, objective).inc(missed)


@cache
def counter_of_closed(agent_id: str, status: str) -> Count:
    return tasks_closed.labels(agent_id, status)


def count_samples(lines: Sequence[Interaction]) -> None:
    """These lines of one task were logged."""
    first = lines[0]
    if first.sample is None:
        return
    logged, scores = _of_version(first.agent_id, first.adapter_version)
    logged.inc(len(lines))
    for line in lines:
        if line.score is None:
            samples_unscored.labels(first.agent_id, line.score_status or "unscorable").inc()
        else:
            scores.observe(line.score)
    if is_own(first.arm.experiment_id):
        return
    latencies = first.latencies
    _in_queue.observe(latencies.queue_s)
    _generating.observe(latencies.generate_s)
    _in_score_queue.observe(latencies.score_queue_s)
    _scoring.observe(latencies.score_s)
    _in_all.observe(latencies.total_s)


def show_primary(agent_id: str, adapters: AgentAdapters) -> None:
    """One series per version and program, 1 for the primary; and whether their scorer is trusted."""
    judge_distrusted.labels(agent_id).set(adapters.distrusted is not None)
    for version in adapters.versions:
        primary_version.labels(agent_id, version).set(version == adapters.primary)
    for program in adapters.programs.entries:
        primary_program.labels(agent_id, program).set(program == adapters.programs.primary)
    change = adapters.versions[adapters.primary].since_base or Change()
    for measure, value in change:
        since_base.labels(agent_id, measure).set(value)


def show_watch(agent_id: str, watch: Experiment | None) -> None:
    """The watch that runs; without one there are no such series."""
    if watch is None:
        for gauge in (watch_e_value, watch_threshold):
            gauge.remove_by_labels({"agent": agent_id})
        return
    watch_e_value.labels(agent_id).set(watch.evidence.harm)
    watch_threshold.labels(agent_id).set(watch.plan.threshold)


def show_experiment(agent_id: str, experiment: Experiment | None) -> None:
    """The experiment that runs; without one there are no such series."""
    if experiment is None:
        for gauge in (experiment_share, experiment_units, experiment_e_value, experiment_threshold):
            gauge.remove_by_labels({"agent": agent_id})
        return
    evidence = experiment.evidence
    experiment_threshold.labels(agent_id).set(experiment.plan.threshold)
    experiment_share.labels(agent_id).set(evidence.share)
    experiment_units.labels(agent_id, "treatment").set(evidence.candidate.units)
    experiment_units.labels(agent_id, "control").set(evidence.primary.units)
    experiment_e_value.labels(agent_id, "gain").set(evidence.gain_score)
    experiment_e_value.labels(agent_id, "success_kept").set(evidence.gain_success)
    if evidence.kept is not None:
        experiment_e_value.labels(agent_id, "limits_kept").set(evidence.kept)
    if evidence.gain_audit is not None:
        experiment_e_value.labels(agent_id, "audit_kept").set(evidence.gain_audit)
    if evidence.gain_served is not None:
        experiment_e_value.labels(agent_id, "served_kept").set(evidence.gain_served)
    experiment_e_value.labels(agent_id, "harm").set(evidence.harm)
    experiment_e_value.labels(agent_id, "sample_ratio").set(evidence.sample_ratio)
