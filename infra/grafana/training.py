"""The dashboard of the trainer: what it waits for, how a run goes, what it learned from."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.panels import HALF, QUARTER, Query, agent_variable, lines, number, page, row


def training() -> Dashboard:
    dashboard = page("ratchet-training", "Ratchet: training", "What the trainer does, and what it learned from.")
    dashboard.with_variable(agent_variable())
    _standing(dashboard)
    _run(dashboard)
    return dashboard


def _standing(dashboard: Dashboard) -> None:
    panels = (
        number(
            "Groups to learn from",
            "Since the last training: groups whose scores differ.",
            Query('sum(ratchet_useful_groups{agent=~"$agent"})'),
            span=QUARTER,
        ),
        number("Runs waiting", "Asked for and not ended.", Query("sum(ratchet_trainer_jobs_waiting)"), span=QUARTER),
        number(
            "Running",
            "Runs in hand now.",
            Query('sum(ratchet_trainer_running{agent_id=~"$agent"})'),
            span=QUARTER,
        ),
        number(
            "Processes that died",
            "Training processes that ended before their job did; the job goes on from its checkpoint.",
            Query("sum(ratchet_trainer_process_deaths_total)"),
            span=QUARTER,
            limits=((None, "green"), (1.0, "orange")),
        ),
        lines(
            "Runs by how they ended",
            "In the last hour, as the orchestrator heard. Refused: the log can't support a training.",
            Query(
                'sum by (agent, status) (round(increase(ratchet_trainings_total{agent=~"$agent"}[1h])))',
                "{{agent}} {{status}}",
            ),
            span=HALF,
            steps=True,
        ),
        lines(
            "Runs by how they ended, at the trainer",
            "Since it started.",
            Query('ratchet_trainer_runs_total{agent_id=~"$agent"}', "{{agent_id}} {{status}}"),
            span=HALF,
            steps=True,
        ),
    )
    row(dashboard, "Standing", panels)


def _run(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Steps",
            "Done, and all of the present run.",
            Query('ratchet_trainer_step{agent_id=~"$agent"}', "{{agent_id}}: done"),
            Query('ratchet_trainer_steps{agent_id=~"$agent"}', "{{agent_id}}: in all"),
        ),
        lines(
            "Loss and gradient",
            "Of the last step. The loss need not fall: it is a policy gradient's, not a likelihood's.",
            Query(_figures("loss|gradient_norm"), "{{agent_id}} {{figure}}"),
            from_zero=False,
        ),
        lines(
            "Reward and entropy",
            "Of the replayed samples, at the last step.",
            Query(_figures("reward|entropy|kl"), "{{agent_id}} {{figure}}"),
            from_zero=False,
        ),
        lines(
            "Does the log fit the policy?",
            "Mean importance weight near 1, effective share near 1, a small log-probability gap, little clipping.",
            Query(_figures("mean_weight|effective_share|gap|divergence|clip_fraction"), "{{agent_id}} {{figure}}"),
        ),
        lines(
            "Groups of the last window",
            "Used, and left out by reason.",
            Query('ratchet_trainer_groups{agent_id=~"$agent", part=~"groups.*"}', "{{agent_id}} {{part}}"),
            steps=True,
        ),
        lines(
            "Lines and samples of the last window",
            "Used, and left out by reason.",
            Query('ratchet_trainer_groups{agent_id=~"$agent", part=~"lines.*|samples.*"}', "{{agent_id}} {{part}}"),
            steps=True,
        ),
    )
    row(dashboard, "Present or last run", panels)


def _figures(names: str) -> str:
    return f'ratchet_trainer_figure{{agent_id=~"$agent", figure=~"{names}"}}'
