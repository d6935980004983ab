"""The dashboard of the queues: what waits where, who takes it, what is retried, how the broker is."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.panels import HALF, QUARTER, Query, lines, number, page, row
from infra.grafana.promql import quantile, rate

FULL_BY_BYTES = (
    'label_replace(max by (namespace, fleet, queue) (rabbitmq_detailed_queue_messages_ready_bytes), "wire", "$1", '
    '"queue", "(.+)") / on (namespace, fleet, wire) group_right () ratchet_queue_max_bytes{queue!="results"}'
)
"""The share of each queue's bound in bytes that is taken; as the alert RatchetQueueNearlyFull has it."""


def queues() -> Dashboard:
    dashboard = page("ratchet-queues", "Ratchet: queues", "What waits where, who takes it, and how the broker is.")
    _depths(dashboard)
    _deliveries(dashboard)
    _broker(dashboard)
    return dashboard


def _depths(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Messages that wait",
            "By queue. What grows here grows behind the slowest service.",
            Query('ratchet_queue_messages{queue!~"results|dead-letters|unroutable"}', "{{queue}}"),
            span=HALF,
        ),
        lines(
            "For people",
            "Dead letters, and what was published under a name no queue has. Normal is 0.",
            Query('ratchet_queue_messages{queue=~"dead-letters|unroutable"}', "{{queue}}"),
            Query("max(ratchet_dead_letters_waiting)", "on disk, for room in dead-letters"),
            span=QUARTER,
        ),
        lines(
            "Results nobody fetched",
            "Of tasks without reply_to, or read there too; the newest million of 7 days stays.",
            Query('ratchet_queue_messages{queue="results"}', "{{queue}}"),
            span=QUARTER,
        ),
        lines(
            "Consumers",
            "By queue. One on the orchestrator's queues; as many as replicas on work, responses and training."
            " A line at 0 is a queue nobody works off.",
            Query('ratchet_queue_consumers{queue!~"results|dead-letters|unroutable"}', "{{queue}}"),
            span=HALF,
            steps=True,
        ),
        lines(
            "Age of the oldest open task",
            "Rises second by second while a task hangs; the alert is at the line.",
            Query("max(ratchet_oldest_open_task_seconds)", "oldest"),
            unit="s",
            span=HALF,
            limit=1800,
        ),
        lines(
            "How full, by bytes",
            "Of its share of the broker's disk; the alert is at the line. A full queue refuses messages.",
            Query(FULL_BY_BYTES, "{{queue}}"),
            unit="percentunit",
            span=HALF,
            limit=0.8,
        ),
    )
    row(dashboard, "Depth", panels)


def _deliveries(dashboard: Dashboard) -> None:
    panels = (
        lines(
            "Deliveries per second",
            "Acknowledged, by queue.",
            Query(rate("ratchet_messages_total", "queue", of='outcome="acked"'), "{{queue}}"),
            unit="ops",
        ),
        lines(
            "Not acknowledged",
            "Retried up the ladder, dead-lettered, or handed back at the end of a drain; queues only while it happens.",
            Query(rate("ratchet_messages_total", of='outcome!="acked"'), "of all queues"),
            Query(
                rate("ratchet_messages_total", "queue", "outcome", of='outcome!="acked"') + " > 0",
                "{{queue}} {{outcome}}",
            ),
            unit="ops",
        ),
        lines(
            "Publishes repeated",
            "After a nack or a lost connection; normal while the broker restarts.",
            Query(rate("ratchet_publish_retries_total", "job"), "{{job}}"),
            unit="ops",
        ),
        lines(
            "From delivery to outcome (95 %)",
            "By queue; for work and responses the model's time is in it.",
            Query(quantile(0.95, "ratchet_handle_seconds", "queue"), "{{queue}}"),
            unit="s",
            span=HALF,
        ),
        lines(
            "From publish to confirm (95 %)",
            "By queue. The broker's disk speaks here first.",
            Query(quantile(0.95, "ratchet_publish_seconds", "queue"), "{{queue}}"),
            unit="s",
            span=HALF,
        ),
    )
    row(dashboard, "Deliveries", panels)


def _broker(dashboard: Dashboard) -> None:
    alarm = (
        "max(rabbitmq_alarms_memory_used_watermark) + max(rabbitmq_alarms_free_disk_space_watermark)"
        " + (max(rabbitmq_alarms_file_descriptor_limit) or vector(0))"
    )
    panels = (
        number(
            "Alarms",
            "Memory, disk, file descriptors. With any of them publishers are blocked.",
            Query(alarm),
            span=QUARTER,
            limits=((None, "green"), (1.0, "red")),
        ),
        number("Connections", "To the broker; two for each service.", Query("sum(rabbitmq_connections)"), span=QUARTER),
        number("Consumers in all", "On the broker as a whole.", Query("sum(rabbitmq_consumers)"), span=QUARTER),
        number("Queues", "Those of agents' listeners come and go.", Query("sum(rabbitmq_queues)"), span=QUARTER),
        lines(
            "Messages in the broker",
            "Ready and unacknowledged, summed over all queues.",
            Query("sum(rabbitmq_queue_messages_ready)", "ready"),
            Query("sum(rabbitmq_queue_messages_unacked)", "unacknowledged"),
        ),
        lines(
            "Memory",
            "Of each node, and where it raises its alarm. Logarithmic.",
            Query("rabbitmq_process_resident_memory_bytes", "{{instance}}"),
            Query("rabbitmq_resident_memory_limit_bytes", "{{instance}} limit"),
            unit="decbytes",
            logarithmic=True,
        ),
        lines(
            "Free disk",
            "Of each node, and where it raises its alarm. Logarithmic.",
            Query("rabbitmq_disk_space_available_bytes", "{{instance}}"),
            Query("rabbitmq_disk_space_available_limit_bytes", "{{instance}} limit"),
            unit="decbytes",
            logarithmic=True,
        ),
    )
    row(dashboard, "RabbitMQ", panels)
