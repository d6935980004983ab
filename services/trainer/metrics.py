"""The trainer's metrics, for Prometheus. A run's gauges keep their last value until the agent's next run."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

runs = Counter(
    "ratchet_trainer_runs_total", "Runs by how they ended: trained, refused, failed.", ["agent_id", "status"]
)
deaths = Counter("ratchet_trainer_process_deaths_total", "Training processes that ended before their run did.")
waiting = Gauge("ratchet_trainer_jobs_waiting", "Runs asked for and not ended.")
running = Gauge("ratchet_trainer_running", "1 while a run is in hand.", ["agent_id"])
step = Gauge("ratchet_trainer_step", "Steps done by the present run.", ["agent_id"])
steps = Gauge("ratchet_trainer_steps", "Steps of the present run.", ["agent_id"])
figures = Gauge(
    "ratchet_trainer_figure", "Figures of the last step: loss, reward, gap and so on.", ["agent_id", "figure"]
)
groups = Gauge(
    "ratchet_trainer_groups", "Of the last window: groups used, and left out by reason.", ["agent_id", "part"]
)
