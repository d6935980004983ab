"""`ratchet watch`: the fleet at work, looked at once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ratchet.cli.watch.figures import WatchFigures

    Reading = tuple[WatchFigures, tuple[str, ...]]


def watch(
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once; rates are those of one interval.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a reading.")] = False,
) -> None:
    """Queues, rates, scores by adapter version and latencies by stage; live on a terminal, a line a reading elsewhere.

    With --once the exit code is 3 where no broker answers.
    """
    from ratchet.cli.fleet.folder import FleetAccess
    from ratchet.cli.terminal.errors import ExitCode
    from ratchet.cli.watch.source import WatchSource

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
    import time

    first = read()
    if not once:
        yield first
    while True:
        time.sleep(interval)
        yield read()
        if once:
            return


def _show(readings: Iterator[Reading], *, json: bool, once: bool) -> None:
    from ratchet.cli.terminal.console import out, print_json
    from ratchet.cli.watch.view import plain_line, render_watch

    if json:
        for figures, trouble in readings:
            print_json(figures.as_dict() | {"trouble": trouble}, indent=None)
    elif once:
        for figures, trouble in readings:
            out.print(render_watch(figures, trouble), soft_wrap=False)
    elif out.is_terminal:
        _show_live(readings)
    else:
        for figures, trouble in readings:
            out.print("; ".join((plain_line(figures), *trouble)), markup=False)


def _show_live(readings: Iterator[Reading]) -> None:
    from rich.live import Live

    from ratchet.cli.terminal.console import out
    from ratchet.cli.watch.view import render_watch

    with Live(console=out, screen=False, auto_refresh=False) as live:
        for figures, trouble in readings:
            live.update(render_watch(figures, trouble), refresh=True)
