"""What `up` and `demo` share: make missing models, start the fleet or what is down of it, show progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.cli.fleet.folder import FleetFolder, FleetRecord
from ratchet.cli.fleet.options import FleetOptions
from ratchet.cli.fleet.plan import plan_fleet
from ratchet.cli.fleet.processes import supervisor_process
from ratchet.cli.fleet.readiness_view import ReadinessView
from ratchet.cli.fleet.start import FleetStart
from ratchet.cli.fleet.supervisord import Supervisor
from ratchet.cli.models.make import make_models
from ratchet.cli.terminal.console import err, say
from ratchet.cli.terminal.exit_codes import CommandError
from ratchet.files.folder_lock import FolderLock
from ratchet.service.settings import FleetSettings
from ratchet.service.settings_check import require_usable, unknown_names

MODELS_FOLDER = Path("models")


def start_fleet(options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool) -> FleetRecord:
    """Returns when every service is ready. Raises CommandError, BusError, TimedOut.

    A fleet that is up already keeps its options; where others are insisted on, that is an error.
    """
    folder = FleetFolder.here()
    with _alone(folder):
        return _launch(folder, options, amqp_url, timeout_s, insist=insist)


def _launch(
    folder: FleetFolder, options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool
) -> FleetRecord:
    for sentence in unknown_names(os.environ):
        say(f"warning: {sentence}")
    require_usable()
    settings = FleetSettings.read()
    view = ReadinessView(err)
    start = FleetStart(folder, say, view.show)
    record = folder.record()
    if record and supervisor_process(record):
        if insist and record.options != options:
            raise CommandError("a fleet with other options is up here: `ratchet down` first, or `ratchet status`")
        return _complete(record, start, view, settings.drain_grace_s, timeout_s)
    plan = plan_fleet(options, folder.broker, amqp_url, settings.drain_grace_s)
    start.preflight(plan)
    if options.models_to_make:
        say("making the models (about a minute, once) …")
        make_models(MODELS_FOLDER, say)
    with view.open():
        return start.start(plan, options, settings, timeout_s)


@contextmanager
def _alone(folder: FleetFolder) -> Iterator[None]:
    """Raises CommandError while another process starts this fleet."""
    lock = FolderLock(folder.root)
    if not lock.try_acquire():
        raise CommandError(f"another process is starting this fleet ({lock.holder()}): wait for it")
    try:
        yield
    finally:
        lock.release()


def _complete(
    record: FleetRecord, start: FleetStart, view: ReadinessView, drain_grace_s: float, timeout_s: float
) -> FleetRecord:
    """A fleet that is up stays as it is; what is down of it is started again."""
    started = Supervisor(start.folder).start_what_is_down()
    say(f"already up; started again: {', '.join(started)}" if started else "already up")
    url = None if record.own_broker else record.amqp_url
    plan = plan_fleet(record.options, start.folder.broker, url, drain_grace_s)
    with view.open():
        start.wait(plan, timeout_s)
    return record


def stop_fleet() -> list[str] | None:
    """Stop the fleet that was started here. None if there was none; else what had to go the hard way."""
    folder = FleetFolder.here()
    record = folder.record()
    start = FleetStart(folder, say, lambda _: None)
    if record is None:
        left = start.stop_unrecorded()
        return left or None
    return start.stop(record)
