"""The dashboard of the processes: what they take of the machine, whether there is enough, who is connected."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.panels import HALF, WHOLE, Query, lines, page, row


def processes() -> Dashboard:
    dashboard = page("ratchet-processes", "Ratchet: processes", "What the processes take, and whether there is enough.")
    _running(dashboard)
    _disk(dashboard)
    return dashboard


def _running(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "CPU cores used",
            "By process; an agent's model has one of its own. Servers of vllm and runs of the trainer are not counted.",
            Query("rate(process_cpu_seconds_total[$__rate_interval])", "{{job}} {{instance}}"),
            Query("rate(ratchet_agent_engine_process_cpu_seconds_total[$__rate_interval])", "model of {{instance}}"),
            span=HALF,
        ),
        lines(
            "Memory",
            "Resident, by process, as above. Flat for the orchestrator, whatever the number of tasks.",
            Query("process_resident_memory_bytes", "{{job}} {{instance}}"),
            Query("ratchet_agent_engine_process_resident_memory_bytes", "model of {{instance}}"),
            unit="bytes",
            span=HALF,
        ),
        lines(
            "Connected to the broker, and ready",
            "1 while it is, and while it can do its work. A standby is not ready, which is its job.",
            Query("ratchet_broker_connected", "{{job}} {{instance}}"),
            Query("ratchet_ready", "{{job}} {{instance}} ready"),
            span=HALF,
            steps=True,
        ),
        lines(
            "In hand",
            "Deliveries being handled now, by queue.",
            Query("sum by (queue) (ratchet_in_flight)", "{{queue}}"),
            span=HALF,
        ),
    )
    row(dashboard, "Processes", panels)


def _disk(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Disk space left",
            "Where the logs and the adapters lie. The fleet stops, and loses nothing, when there is none.",
            Query("ratchet_disk_free_bytes / ratchet_disk_size_bytes", "{{folder}}"),
            unit="percentunit",
        ),
        lines(
            "Logs on disk",
            "By log, and what both may take together: beyond it the oldest segments go, once nothing needs them."
            " Logarithmic.",
            Query("ratchet_log_bytes", "{{log}}"),
            Query("ratchet_log_bound_bytes > 0", "the bound"),
            unit="decbytes",
            logarithmic=True,
        ),
        lines(
            "Segments removed from the logs",
            "In an hour, by log. Held is 1 while the logs are over their bound and something needs all of them.",
            Query("sum by (log) (round(increase(ratchet_log_segments_removed_total[1h])))", "{{log}}"),
            Query("max(ratchet_log_removal_held)", "held"),
        ),
        lines(
            "Age of the last backup",
            "Since `ratchet backup` was last done. Empty where it never was.",
            Query("time() - max(ratchet_backup_timestamp_seconds > 0)", "age"),
            unit="s",
            span=WHOLE,
        ),
    )
    row(dashboard, "Disk", panels)
