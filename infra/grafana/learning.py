"""The dashboard of what is learned: scores by adapter version, the running experiment, decisions, the judge."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.panels import HALF, HEIGHT, QUARTER, Query, agent_variable, heat, lines, number, page, row
from infra.grafana.promql import mean, rate

LEAST, MOST = 0.01, 1000
"""E-values have no bounds; outside of these nothing is to be read, and the line at which it is decided would drown."""
MOVES = (
    "register|reject|start_experiment|promote|settle|roll_back|conclude"
    "|move_cascade|try_program|reject_program|promote_program|settle_program|roll_back_program"
)
"""Moves that the orchestrator decides; the others tidy up, or are an operator's."""
MEAN_SCORE = mean("ratchet_sample_score", "agent", "adapter_version", of='agent=~"$agent"')
SCORER_MEAN = mean("ratchet_scorer_score", "agent_id", "adapter_version", of='agent_id=~"$agent"')

FEEDBACK_MEAN = (
    'sum by (agent, adapter_version) (increase(ratchet_feedback_score_sum{agent=~"$agent"}[6h]))'
    ' / sum by (agent, adapter_version) (increase(ratchet_feedback_score_count{agent=~"$agent"}[6h]))'
)


def learning() -> Dashboard:
    dashboard = page("ratchet-learning", "Ratchet: learning", "Does it get better, and what was decided on what proof?")
    dashboard.with_variable(agent_variable())
    _scores(dashboard)
    _experiment(dashboard)
    _watch(dashboard)
    _cascade(dashboard)
    _auditor(dashboard)
    _decisions(dashboard)
    return dashboard


def _scores(dashboard: Dashboard) -> None:
    scores = 'sum by (le) (increase(ratchet_sample_score_bucket{agent=~"$agent"}[$__rate_interval]))'
    panels = (
        lines(
            "Mean score by adapter version",
            "Of all samples, 0 to 1. Descriptive: the verdict comes from the experiment, which corrects for drift.",
            Query(MEAN_SCORE, "{{agent}} {{adapter_version}}"),
            span=HALF,
        ),
        heat("Scores", "How many samples got which score.", Query(scores, "{{le}}"), span=HALF),
        lines(
            "Served and single answers",
            "Of the answer the user got, the best of its group, and of a single one; since the orchestrator's start.",
            Query(
                'ratchet_quality{agent=~"$agent", measure=~"served|single", statistic="mean"}',
                "{{agent}} {{adapter_version}} {{measure}}",
            ),
        ),
        lines(
            "Distinct answers in a group",
            "Few mean that a smaller group would do. And the verdicts that were saved, per second.",
            Query(
                'ratchet_quality{agent=~"$agent", measure="distinct", statistic="mean"}',
                "{{agent}} {{adapter_version}}",
            ),
            Query(rate("ratchet_scorer_verdicts_saved_total", "reason"), "saved: {{reason}}"),
        ),
        lines(
            "How far two verdicts on one answer lie apart",
            "Of the share of tasks that is judged twice, RATCHET_SCORER_JUDGE_REPEAT_SHARE: the judge's noise.",
            Query(mean("ratchet_scorer_verdict_difference"), "mean difference"),
        ),
        lines(
            "Answers sampled a task",
            "Of tasks that do not say; fewer where fewer are proved enough (RATCHET_ADAPTIVE_SAMPLES).",
            Query('ratchet_samples{agent=~"$agent"}', "{{agent}}"),
            steps=True,
        ),
        lines(
            "Answers not needed",
            "Those of the whole group that were not sampled, per second.",
            Query(rate("ratchet_samples_saved_total", "agent", of='agent=~"$agent"'), "{{agent}}"),
            unit="ops",
        ),
        lines(
            "Tokens saved",
            "Per second: what these answers would have had, on average.",
            Query(rate("ratchet_tokens_saved_total", "agent", of='agent=~"$agent"'), "{{agent}}"),
        ),
        lines(
            "Samples by adapter version",
            "Which version answers how much.",
            Query(
                rate("ratchet_samples_logged_total", "agent", "adapter_version", of='agent=~"$agent"'),
                "{{agent}} {{adapter_version}}",
            ),
            unit="ops",
            stacked=True,
        ),
        lines(
            "Primary",
            "The version that answers users, over time, and the program where one does by default.",
            Query('ratchet_primary_adapter{agent=~"$agent"} == 1', "{{agent}} {{version}}"),
            Query('ratchet_primary_program{agent=~"$agent"} == 1', "{{agent}} {{program}}"),
            steps=True,
        ),
        lines(
            "Running mean heard by the agents",
            "Since each replica started, by adapter version.",
            Query("avg by (adapter_version) (ratchet_agent_running_score)", "{{adapter_version}}"),
        ),
        lines(
            "Scores heard by the agents",
            "How many that mean is over.",
            Query("max by (adapter_version) (ratchet_agent_rewards)", "{{adapter_version}}"),
            span=HALF,
        ),
        lines(
            "Mean score at the scorer",
            "As given, before the orchestrator logged it.",
            Query(SCORER_MEAN, "{{agent_id}} {{adapter_version}}"),
            span=HALF,
        ),
        lines(
            "Mean feedback by adapter version",
            "Of applications, over 6 hours, 0 to 1. Who gives it is self-selected: no experiment uses it.",
            Query(FEEDBACK_MEAN, "{{agent}} {{adapter_version}}"),
            span=HALF,
        ),
        lines(
            "Feedback",
            "How much there is, over 6 hours.",
            Query(
                'sum by (agent, adapter_version) (increase(ratchet_feedback_score_count{agent=~"$agent"}[6h]))',
                "{{agent}} {{adapter_version}}",
            ),
            span=HALF,
        ),
    )
    row(dashboard, "Scores", panels)


def _experiment(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Evidence",
            "E-values of the running experiment. Gain, success_kept and limits_kept at the line “decides”: promoted;"
            " harm: rolled back. Drawn from 0.01 to 1,000.",
            Query(f'clamp(ratchet_experiment_e_value{{agent=~"$agent"}}, {LEAST}, {MOST})', "{{agent}} {{test}}"),
            Query('ratchet_experiment_threshold{agent=~"$agent"}', "{{agent}} decides"),
            span=HALF,
            logarithmic=True,
        ),
        lines(
            "Share of the treatment",
            "Rises in steps as the evidence allows.",
            Query('ratchet_experiment_share{agent=~"$agent"}', "{{agent}}"),
            unit="percentunit",
            span=QUARTER,
            steps=True,
        ),
        lines(
            "Units",
            "Finished tasks or sessions of each arm.",
            Query('ratchet_experiment_units{agent=~"$agent"}', "{{agent}} {{arm}}"),
            span=QUARTER,
        ),
    )
    row(dashboard, "Running experiment", panels)


def _watch(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Watch over the primary",
            "E-value that it is harmful, beside the version before it or v1.0.0. At the line “rolls back”: demoted.",
            Query(f'clamp(ratchet_watch_e_value{{agent=~"$agent"}}, {LEAST}, {MOST})', "{{agent}} harm"),
            Query('ratchet_watch_threshold{agent=~"$agent"}', "{{agent}} rolls back"),
            span=HALF,
            logarithmic=True,
        ),
        lines(
            "The primary since v1.0.0",
            "Differences of score, success and share of refusals; length and latency in times of v1.0.0's.",
            Query('ratchet_primary_since_base{agent=~"$agent"}', "{{agent}} {{measure}}"),
            span=HALF,
        ),
    )
    row(dashboard, "Primary", panels)


def _cascade(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Share of the small model",
            "Of the tasks, that it may answer in place of the big model; and that it has answered, over an hour.",
            Query('ratchet_cascade_share{agent=~"$agent"}', "{{agent}} may"),
            Query(
                'sum by (agent) (increase(ratchet_cascade_tasks_total{agent=~"$agent", by="small"}[1h]))'
                ' / sum by (agent) (increase(ratchet_cascade_tasks_total{agent=~"$agent"}[1h]))',
                "{{agent}} has",
            ),
            unit="percentunit",
            span=QUARTER,
            steps=True,
        ),
        lines(
            "Cost",
            "Since the cascade began, at RATCHET_PRICES; big_alone is what the big model would have cost.",
            Query('ratchet_cascade_cost{agent=~"$agent"}', "{{agent}} {{model}}"),
            span=QUARTER,
        ),
        lines(
            "Proof for the next share",
            "E-values: not_worse raises the share at the line “decides”, worse lowers it at 20.",
            Query(f'clamp(ratchet_cascade_e_value{{agent=~"$agent"}}, {LEAST}, {MOST})', "{{agent}} {{test}}"),
            Query('ratchet_cascade_threshold{agent=~"$agent"}', "{{agent}} decides"),
            span=HALF,
            logarithmic=True,
        ),
    )
    row(dashboard, "Cascade", panels)


def _auditor(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Scorer and auditor differ",
            "How often they order two answers to a task differently, over the newest 200 audits; half would be chance.",
            Query('ratchet_audit_discordance{agent=~"$agent"}', "{{agent}}"),
            unit="percentunit",
            span=HALF,
            limit=0.4,
        ),
        lines(
            "Scorer minus auditor",
            "Difference of their mean scores over the newest 200 audits. Their scales may differ; a change says more.",
            Query('ratchet_audit_gap{agent=~"$agent"}', "{{agent}}"),
            span=QUARTER,
        ),
        lines(
            "Audits",
            "Tasks an hour that the auditor scored, and that it did not.",
            Query(
                'sum by (agent, outcome) (increase(ratchet_audits_total{agent=~"$agent"}[1h]))', "{{agent}} {{outcome}}"
            ),
            span=QUARTER,
        ),
    )
    row(dashboard, "Auditor", panels)


def _decisions(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Decisions",
            "What the orchestrator decided in the last hour; adapters/decisions.jsonl has the evidence of each.",
            Query(
                "sum by (agent, move) (round(increase("
                f'ratchet_decisions_total{{agent=~"$agent", move=~"{MOVES}"}}[1h])))',
                "{{agent}} {{move}}",
            ),
            span=HALF,
            steps=True,
        ),
        lines(
            "Drift of the scorer",
            "Mean change of the scores of fixed answers, and its spread. Training waits once a drift is proved (1).",
            Query('abs(ratchet_judge_drift{agent=~"$agent"})', "{{agent}}"),
            Query('ratchet_judge_noise{agent=~"$agent"}', "{{agent}} noise"),
            Query('ratchet_judge_distrusted{agent=~"$agent"}', "{{agent}} distrusted"),
            span=QUARTER,
            limit=0.05,
        ),
        number(
            "Last change of the primary",
            "Seconds from the decision to the first answer of the new primary.",
            Query('max(ratchet_swap_seconds{agent=~"$agent"})'),
            unit="s",
            span=QUARTER,
            height=HEIGHT,
        ),
    )
    row(dashboard, "Decisions", panels)
