"""The dashboard a person looks at first: does the fleet answer, how fast, what is wrong. Processes have their own."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from infra.grafana.panels import QUARTER, WHOLE, Query, lines, log_lines, number, page, row
from infra.grafana.promql import quantile, rate

GOOD_AT_ONE = ((None, "red"), (1.0, "green"), (2.0, "red"))
BAD_FROM_ONE = ((None, "green"), (1.0, "red"))


def fleet() -> Dashboard:
    dashboard = page("ratchet-fleet", "Ratchet: fleet", "Does the fleet answer, how fast, and what is wrong?")
    _now(dashboard)
    _traffic(dashboard)
    _work(dashboard)
    _programs(dashboard)
    _jobs(dashboard)
    return dashboard.with_row(Row("Logs")).with_panel(
        log_lines("Warnings and errors", "Of all services.", '{fleet=~"$fleet", level=~"WARNING|ERROR"}')
    )


def _now(dashboard: Dashboard) -> None:
    panels = (
        number(
            "Leaders",
            "Orchestrators that work. Exactly 1: standbys wait.",
            Query("sum(ratchet_orchestrator_active)"),
            limits=GOOD_AT_ONE,
        ),
        number(
            "Targets down",
            "Services, replicas and the broker that can't be scraped.",
            Query("count(up == 0) or vector(0)"),
            limits=BAD_FROM_ONE,
        ),
        number("Open tasks", "Admitted and not yet closed.", Query("sum(ratchet_open_tasks)")),
        number(
            "Oldest open task",
            "How long the oldest task has waited for its result.",
            Query("max(ratchet_oldest_open_task_seconds)"),
            unit="s",
            limits=((None, "green"), (600.0, "orange"), (1800.0, "red")),
        ),
        number(
            "Dead letters",
            "Messages a person has to look at: `ratchet dead-letters list`.",
            Query('sum(ratchet_queue_messages{queue="dead-letters"})'),
            limits=((None, "green"), (1.0, "orange")),
        ),
        number(
            "Alerts firing",
            "What docs/operations.md has a section for.",
            Query('count(ALERTS{alertname=~"Ratchet.+", alertstate="firing"}) or vector(0)'),
            limits=BAD_FROM_ONE,
        ),
    )
    row(dashboard, "Now", panels)
    dashboard.with_panel(
        lines(
            "Alerts",
            "Which fire, and since when. `none` is always there, at 0.",
            Query(
                'count by (alertname) (ALERTS{alertname=~"Ratchet.+", alertstate="firing"})'
                ' or label_replace(vector(0), "alertname", "none", "", "")',
                "{{alertname}}",
            ),
            span=WHOLE,
            height=6,
            steps=True,
            stacked=True,
        )
    )


def _jobs(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Open jobs", "Of the manager, by state.", Query("sum by (state) (ratchet_manager_open_jobs)", "{{state}}")
        ),
        lines(
            "Tasks of open jobs",
            "Waiting in the manager's database, or released to the fleet.",
            Query("sum by (state) (ratchet_manager_open_tasks)", "{{state}}"),
        ),
        lines(
            "Tasks of jobs that end",
            "How many a second ended, by state.",
            Query(rate("ratchet_manager_ended_tasks_total", "state"), "{{state}}"),
            unit="ops",
        ),
        lines(
            "Quotas",
            "Used share of each limit that a tenant has. An alert fires at 80 %.",
            Query("max by (tenant, limit) (ratchet_manager_quota_used_ratio)", "{{tenant}} {{limit}}"),
            span=WHOLE,
            unit="percentunit",
        ),
    )
    row(dashboard, "Jobs", panels)


def _traffic(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Tasks per second",
            "Admitted, and closed by status, of users and the fleet itself: their sums are the same while it keeps up.",
            Query(rate("ratchet_tasks_admitted_total"), "admitted"),
            Query(rate("ratchet_tasks_closed_total", "status"), "{{status}}"),
            Query(rate("ratchet_own_tasks_closed_total", "status"), "{{status}} of the fleet's own"),
            unit="ops",
        ),
        lines(
            "Time to the result",
            "From admission to the log: half of the tasks, 95 and 99 of a hundred.",
            Query(quantile(0.5, "ratchet_stage_seconds", of='stage="total"'), "50 %"),
            Query(quantile(0.95, "ratchet_stage_seconds", of='stage="total"'), "95 %"),
            Query(quantile(0.99, "ratchet_stage_seconds", of='stage="total"'), "99 %"),
            unit="s",
        ),
        lines(
            "Objectives",
            "Share of the tasks that missed each objective, and the share that may.",
            Query(
                f"({rate('ratchet_objective_missed_total', 'objective')})"
                f" / ({rate('ratchet_objective_tasks_total', 'objective')})",
                "{{objective}}",
            ),
            Query("max by (objective) (ratchet_objective_budget)", "{{objective}} may"),
            unit="percentunit",
        ),
        lines(
            "Where the time goes (95 %)",
            "By stage: waiting for the agent, generating, waiting for the scorer, scoring.",
            Query(quantile(0.95, "ratchet_stage_seconds", "stage", of='stage!="total"'), "{{stage}}"),
            unit="s",
        ),
        lines(
            "Refused and repeated tasks, untold results",
            "Not valid (in dead-letters, with the reason); known already (answered from the log); given up.",
            Query(rate("ratchet_tasks_refused_total"), "refused"),
            Query(rate("ratchet_tasks_repeated_total"), "repeated"),
            Query(rate("ratchet_results_untold_total"), "untold"),
            unit="ops",
        ),
        lines(
            "Samples logged and without a score",
            "Unscorable: nothing to compare with. infra_fail and timeout: the scorer's own failure.",
            Query(rate("ratchet_samples_logged_total"), "logged"),
            Query(rate("ratchet_samples_unscored_total", "status"), "{{status}}"),
            unit="ops",
        ),
        lines(
            "Work and Responses, by outcome",
            "What the agents and the scorers made of what they got.",
            Query(rate("ratchet_agent_tasks_total", "outcome"), "agent: {{outcome}}"),
            Query(rate("ratchet_scorer_tasks_total", "outcome"), "scorer: {{outcome}}"),
            unit="ops",
        ),
    )
    row(dashboard, "Traffic", panels)


def _work(dashboard: Dashboard) -> None:
    batch = (
        "rate(ratchet_agent_batch_samples_sum[$__rate_interval])"
        " / rate(ratchet_agent_batch_samples_count[$__rate_interval])"
    )
    panels = (
        lines(
            "Tokens per second",
            "Sampled, by adapter version.",
            Query(rate("ratchet_agent_tokens_total", "adapter_version"), "{{adapter_version}}"),
            stacked=True,
            span=QUARTER,
        ),
        lines(
            "Samples per call",
            "Mean batch of each agent replica. Small batches under load mean a prefetch that is too small.",
            Query(batch, "{{instance}}"),
            span=QUARTER,
        ),
        lines(
            "Generation and scoring",
            "Seconds for a task, batching included.",
            Query(quantile(0.95, "ratchet_agent_generate_seconds"), "generation, 95 %"),
            Query(quantile(0.95, "ratchet_scorer_score_seconds"), "scoring, 95 %"),
            unit="s",
            span=QUARTER,
        ),
        lines(
            "Why samples ended",
            "Many `length` mean that answers are cut off: raise RATCHET_MAX_TOKENS.",
            Query(rate("ratchet_agent_samples_total", "finish_reason"), "{{finish_reason}}"),
            stacked=True,
            span=QUARTER,
        ),
        lines(
            "Waiting to be generated and scored",
            "Seconds a task has waited when it comes to the agent, and its answer when it comes to the scorer.",
            Query(quantile(0.95, "ratchet_agent_queue_seconds"), "for the agent, 95 %"),
            Query(quantile(0.95, "ratchet_scorer_queue_seconds"), "for the scorer, 95 %"),
            unit="s",
        ),
        lines(
            "Samples scored",
            "By how scoring ended.",
            Query(rate("ratchet_scorer_samples_total", "status"), "{{status}}"),
            unit="ops",
        ),
        lines(
            "Adapters loaded",
            "By agent replica; at most RATCHET_AGENT_MAX_ADAPTERS.",
            Query("ratchet_agent_adapters_loaded", "{{instance}}"),
            steps=True,
        ),
        lines(
            "Calls of the judge",
            "A second, by how they ended.",
            Query(rate("ratchet_scorer_judge_calls_total", "outcome"), "{{outcome}}"),
            unit="ops",
        ),
    )
    row(dashboard, "Agents and scorers", panels)


def _programs(dashboard: Dashboard) -> None:
    ended = rate("ratchet_runner_rollouts_total", "program")
    lost = rate("ratchet_runner_rollouts_total", "program", of='status="lost"')
    panels = (
        lines(
            "Rollouts by program, and how they ended",
            "Lost: by a failure of ours. Resumed: were there already when their Work came again.",
            Query(rate("ratchet_runner_rollouts_total", "program", "status"), "{{program}} {{status}}"),
            Query(rate("ratchet_runner_resumed_total"), "resumed"),
            unit="ops",
        ),
        lines(
            "Time of a rollout",
            "Half of them, by program; and 95 of a hundred waits for a turn.",
            Query(quantile(0.5, "ratchet_runner_rollout_seconds", "program"), "{{program}}"),
            Query(quantile(0.95, "ratchet_runner_wait_seconds"), "wait for a turn"),
            unit="s",
        ),
        lines(
            "Rollouts now",
            "That run, and that wait for their turn.",
            Query("sum(ratchet_runner_rollouts_running)", "running"),
            Query("sum(ratchet_runner_rollouts_waiting)", "waiting"),
        ),
        lines(
            "Calls and tokens of programs",
            "Calls of the model, and tokens sampled, a second; those an agent kept for a runner; Work, by outcome.",
            Query(rate("ratchet_runner_calls_total", "program"), "{{program}}: calls"),
            Query(rate("ratchet_runner_tokens_total", "program"), "{{program}}: tokens"),
            Query(rate("ratchet_agent_call_tokens_total", "source"), "agents: {{source}}"),
            Query(rate("ratchet_runner_tasks_total", "outcome"), "tasks {{outcome}}"),
            unit="ops",
        ),
        lines(
            "Lost rollouts",
            "Share of each program's rollouts that failures of ours ended.",
            Query(f"({lost}) / ({ended})", "{{program}}"),
            unit="percentunit",
        ),
        lines(
            "Room for finished rollouts",
            "Taken by those whose task is not answered yet. At 1 no more are kept, and tasks wait.",
            Query("max by (instance) (ratchet_runner_kept_share)", "{{instance}}"),
            unit="percentunit",
        ),
        lines(
            "Questions to people",
            "That wait for an answer; and answers a second, by what was decided.",
            Query("sum(ratchet_open_approvals)", "open"),
            Query(rate("ratchet_approvals_total", "decision"), "{{decision}}"),
        ),
        lines(
            "Sandboxes refused",
            "1 where a runner, or a scorer that runs code, ends since its sandbox does not hold.",
            Query("max by (job, instance) (ratchet_sandbox_refused)", "{{job}} {{instance}}"),
            steps=True,
        ),
    )
    row(dashboard, "Programs", panels)
