"""The dashboard a person looks at first: does the fleet answer, how fast, what is wrong. Processes have their own."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from infra.grafana.panels import QUARTER, WHOLE, Query, lines, log_lines, number, page, row

GOOD_AT_ONE = ((None, "red"), (1.0, "green"), (2.0, "red"))
BAD_FROM_ONE = ((None, "green"), (1.0, "red"))


def fleet() -> Dashboard:
    dashboard = page("ratchet-fleet", "Ratchet: fleet", "Does the fleet answer, how fast, and what is wrong?")
    _now(dashboard)
    _traffic(dashboard)
    _work(dashboard)
    _programs(dashboard)
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


def _traffic(dashboard: Dashboard) -> None:
    stages = 'sum by (le, stage) (rate(ratchet_stage_seconds_bucket{stage!="total"}[$__rate_interval]))'
    total = 'sum by (le) (rate(ratchet_stage_seconds_bucket{stage="total"}[$__rate_interval]))'
    panels = (
        lines(
            "Tasks per second",
            "Admitted, and closed by status. The lines lie on each other while the fleet keeps up.",
            Query("sum(rate(ratchet_tasks_admitted_total[$__rate_interval]))", "admitted"),
            Query("sum by (status) (rate(ratchet_tasks_closed_total[$__rate_interval]))", "{{status}}"),
            unit="ops",
        ),
        lines(
            "Time to the result",
            "From admission to the log: half of the tasks, 95 and 99 of a hundred.",
            Query(f"histogram_quantile(0.5, {total})", "50 %"),
            Query(f"histogram_quantile(0.95, {total})", "95 %"),
            Query(f"histogram_quantile(0.99, {total})", "99 %"),
            unit="s",
        ),
        lines(
            "Where the time goes (95 %)",
            "By stage: waiting for the agent, generating, waiting for the scorer, scoring.",
            Query(f"histogram_quantile(0.95, {stages})", "{{stage}}"),
            unit="s",
        ),
        lines(
            "Refused and repeated tasks, untold results",
            "Not valid (in dead-letters, with the reason); known already (answered from the log); given up.",
            Query("sum(rate(ratchet_tasks_refused_total[$__rate_interval]))", "refused"),
            Query("sum(rate(ratchet_tasks_repeated_total[$__rate_interval]))", "repeated"),
            Query("sum(rate(ratchet_results_untold_total[$__rate_interval]))", "untold"),
            unit="ops",
        ),
        lines(
            "Samples logged and without a score",
            "Unscorable: nothing to compare with. infra_fail and timeout: the scorer's own failure.",
            Query("sum(rate(ratchet_samples_logged_total[$__rate_interval]))", "logged"),
            Query("sum by (status) (rate(ratchet_samples_unscored_total[$__rate_interval]))", "{{status}}"),
            unit="ops",
        ),
        lines(
            "Work and Responses, by outcome",
            "What the agents and the scorers made of what they got.",
            Query("sum by (outcome) (rate(ratchet_agent_tasks_total[$__rate_interval]))", "agent: {{outcome}}"),
            Query("sum by (outcome) (rate(ratchet_scorer_tasks_total[$__rate_interval]))", "scorer: {{outcome}}"),
            unit="ops",
        ),
    )
    row(dashboard, "Traffic", panels)


def _work(dashboard: Dashboard) -> None:
    generate = "sum by (le) (rate(ratchet_agent_generate_seconds_bucket[$__rate_interval]))"
    batch = (
        "rate(ratchet_agent_batch_samples_sum[$__rate_interval])"
        " / rate(ratchet_agent_batch_samples_count[$__rate_interval])"
    )
    agent_queue = "sum by (le) (rate(ratchet_agent_queue_seconds_bucket[$__rate_interval]))"
    scorer_queue = "sum by (le) (rate(ratchet_scorer_queue_seconds_bucket[$__rate_interval]))"
    score = "sum by (le) (rate(ratchet_scorer_score_seconds_bucket[$__rate_interval]))"
    panels = (
        lines(
            "Tokens per second",
            "Sampled, by adapter version.",
            Query(
                "sum by (adapter_version) (rate(ratchet_agent_tokens_total[$__rate_interval]))", "{{adapter_version}}"
            ),
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
            Query(f"histogram_quantile(0.95, {generate})", "generation, 95 %"),
            Query(f"histogram_quantile(0.95, {score})", "scoring, 95 %"),
            unit="s",
            span=QUARTER,
        ),
        lines(
            "Why samples ended",
            "Many `length` mean that answers are cut off: raise RATCHET_MAX_TOKENS.",
            Query("sum by (finish_reason) (rate(ratchet_agent_samples_total[$__rate_interval]))", "{{finish_reason}}"),
            stacked=True,
            span=QUARTER,
        ),
        lines(
            "Waiting to be generated and scored",
            "Seconds a task has waited when it comes to the agent, and its answer when it comes to the scorer.",
            Query(f"histogram_quantile(0.95, {agent_queue})", "for the agent, 95 %"),
            Query(f"histogram_quantile(0.95, {scorer_queue})", "for the scorer, 95 %"),
            unit="s",
        ),
        lines(
            "Samples scored",
            "By how scoring ended.",
            Query("sum by (status) (rate(ratchet_scorer_samples_total[$__rate_interval]))", "{{status}}"),
            unit="ops",
        ),
        lines(
            "Adapters loaded",
            "By agent replica; at most RATCHET_AGENT_MAX_ADAPTERS.",
            Query("ratchet_agent_adapters_loaded", "{{instance}}"),
            steps=True,
        ),
    )
    row(dashboard, "Agents and scorers", panels)


def _programs(dashboard: Dashboard) -> None:
    took = "sum by (le, program) (rate(ratchet_runner_rollout_seconds_bucket[$__rate_interval]))"
    waited = "sum by (le) (rate(ratchet_runner_wait_seconds_bucket[$__rate_interval]))"
    ended = "sum by (program) (rate(ratchet_runner_rollouts_total[$__rate_interval]))"
    lost = 'sum by (program) (rate(ratchet_runner_rollouts_total{status="lost"}[$__rate_interval]))'
    panels = (
        lines(
            "Rollouts by program, and how they ended",
            "Lost: by a failure of ours. Resumed: were there already when their Work came again.",
            Query(
                "sum by (program, status) (rate(ratchet_runner_rollouts_total[$__rate_interval]))",
                "{{program}} {{status}}",
            ),
            Query("sum(rate(ratchet_runner_resumed_total[$__rate_interval]))", "resumed"),
            unit="ops",
        ),
        lines(
            "Time of a rollout",
            "Half of them, by program; and 95 of a hundred waits for a turn.",
            Query(f"histogram_quantile(0.5, {took})", "{{program}}"),
            Query(f"histogram_quantile(0.95, {waited})", "wait for a turn"),
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
            "Calls of the model, and tokens sampled, a second; Work by what became of it.",
            Query("sum by (program) (rate(ratchet_runner_calls_total[$__rate_interval]))", "{{program}}: calls"),
            Query("sum by (program) (rate(ratchet_runner_tokens_total[$__rate_interval]))", "{{program}}: tokens"),
            Query("sum by (outcome) (rate(ratchet_runner_tasks_total[$__rate_interval]))", "tasks {{outcome}}"),
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
            "Sandboxes refused",
            "1 where a runner, or a scorer that runs code, ends since its sandbox does not hold.",
            Query("max by (job, instance) (ratchet_sandbox_refused)", "{{job}} {{instance}}"),
            steps=True,
        ),
    )
    row(dashboard, "Programs", panels)
