"""`ratchet watch`: the fleet at work, looked at once a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer
from pika.adapters.blocking_connection import BlockingConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import AMQPError
from rich.live import Live

from ratchet.bus.amqp.short_connection import parameters, unreachable
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess
from services.cli.fleet.readiness import QueueDepth, queue_depths
from services.cli.fleet.service_http import answer_at, at_a_glance, metrics_text
from services.cli.terminal import ExitCode, out, print_json
from services.cli.watch.figures import (
    RolloutFigure,
    Snapshot,
    WatchFigures,
    figures,
    parse_series,
    plain_line,
    render_watch,
    rollouts_of,
)

Reading = tuple[WatchFigures, tuple[str, ...]]


def watch(
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once; rates are those of one interval.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a reading.")] = False,
) -> None:
    """Programs' rollouts are shown, too: the calls and tokens of each so far, and how the last ones ended.
    With --once the exit code is 3 where no broker answers.
    """
    source = WatchSource(FleetAccess.here())
    readings = _readings(source.read, interval, once=once)
    try:
        _show(readings, json=json, once=once)
    except KeyboardInterrupt:
        return
    finally:
        source.close()
    if source.broker_fault:
        raise typer.Exit(ExitCode.BROKER_UNREACHABLE)


def _readings(read: Callable[[], Reading], interval: float, *, once: bool) -> Iterator[Reading]:
    first = read()
    if not once:
        yield first
    while True:
        time.sleep(interval)
        yield read()
        if once:
            return


def _show(readings: Iterator[Reading], *, json: bool, once: bool) -> None:
    if json:
        for figures, trouble in readings:
            print_json(asdict(figures) | {"trouble": trouble}, indent=None)
    elif once:
        for figures, trouble in readings:
            out.print(render_watch(figures, trouble), soft_wrap=False)
    elif out.is_terminal:
        with Live(console=out, screen=False, auto_refresh=False) as live:
            for figures, trouble in readings:
                live.update(render_watch(figures, trouble), refresh=True)
    else:
        for figures, trouble in readings:
            out.print("; ".join((plain_line(figures), *trouble)), markup=False)


WINDOW_S = 10.0
"""The rates of queues and tokens are those of this many seconds."""


class WatchSource:
    """Reads the fleet: the services' metrics, the queues. Where one does not answer, that is said."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._connection: BlockingConnection | None = None
        self._window: deque[Snapshot] = deque()
        self.broker_fault: str | None = None
        """The reason why the last reading saw no queues; None if it saw them."""

    def read(self) -> tuple[WatchFigures, tuple[str, ...]]:
        """The figures now, and a sentence for each part that does not answer."""
        trouble: list[str] = []
        series = parse_series(self._metrics(trouble))
        now = Snapshot(time.monotonic(), self._depths(trouble), series)
        while self._window and now.at - self._window[0].at > WINDOW_S:
            self._window.popleft()
        before = self._window[0] if self._window else None
        self._window.append(now)
        return figures(now, before, at_a_glance(self._access.record), self._rollouts()), tuple(trouble)

    def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            with suppress(AMQPError):
                self._connection.close()

    def _metrics(self, trouble: list[str]) -> list[str]:
        record = self._access.record
        if record is None:
            trouble.append(f"no fleet was started here: only the queues can be seen; {FROM_ELSEWHERE}")
            return []
        texts = {program.name: metrics_text(program.http_port) for program in record.programs if program.http_port}
        trouble += [f"{name} does not answer" for name, text in texts.items() if text is None]
        return [text for text in texts.values() if text is not None]

    def _rollouts(self) -> tuple[RolloutFigure, ...]:
        """Return those of a fleet with a runner, as its orchestrator heard of them; none where it does not say."""
        record = self._access.record
        answer = answer_at("/v1/rollouts", record) if record and record.options.with_runner else None
        return rollouts_of(answer["items"]) if isinstance(answer, dict) else ()

    def _depths(self, trouble: list[str]) -> tuple[QueueDepth, ...]:
        """Return the depths over one connection, which is made anew after a loss."""
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = BlockingConnection(parameters(self._access.amqp_url))
            depths = tuple(queue_depths(self._connection, self._access.topology, self._access.namespace))
        except (AMQPError, AMQPConnectorStackTimeout, OSError) as error:
            self.broker_fault = str(unreachable(self._access.amqp_url, error))
            trouble.append(self.broker_fault)
            return ()
        self.broker_fault = None
        return depths
