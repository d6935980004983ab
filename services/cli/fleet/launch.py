"""What `up` and `demo` share: make missing models, start the fleet or what is down of it, show progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.cli.console import err, say
from services.cli.exit_codes import CommandError
from services.cli.fleet.fleet_folder import FleetFolder, FleetRecord
from services.cli.fleet.fleet_options import FleetOptions
from services.cli.fleet.fleet_plan import plan_fleet
from services.cli.fleet.fleet_processes import supervisor_process
from services.cli.fleet.fleet_start import FleetStart
from services.cli.fleet.models_make import make_models
from services.cli.fleet.standing_view import StandingView
from services.cli.fleet.supervisord import Supervisor
from services.settings import FleetSettings
from services.storage.folder_lock import FolderLock

MODELS_FOLDER = Path("models")


def launch(options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool) -> FleetRecord:
    """Returns when every service is ready. Raises CommandError, BusError, TimedOut.

    A fleet that is up already keeps its options; where others are insisted on, that is an error.
    """
    folder = FleetFolder.here()
    with _alone(folder):
        return _launch(folder, options, amqp_url, timeout_s, insist=insist)


def _launch(
    folder: FleetFolder, options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool
) -> FleetRecord:
    settings = FleetSettings.read()
    view = StandingView(err)
    start = FleetStart(folder, say, view.show)
    record = folder.record()
    if record and supervisor_process(record):
        if insist and record.options != options:
            raise CommandError("a fleet with other options is up here: `ratchet down` first, or `ratchet status`")
        return _complete(record, start, view, settings.drain_grace_s, timeout_s)
    plan = plan_fleet(options, folder.broker, amqp_url, settings.drain_grace_s)
    start.make_way(plan)
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
    record: FleetRecord, start: FleetStart, view: StandingView, drain_grace_s: float, timeout_s: float
) -> FleetRecord:
    """A fleet that is up stays as it is; what is down of it is started again."""
    started = Supervisor(start.folder).start_what_is_down()
    say(f"already up; started again: {', '.join(started)}" if started else "already up")
    url = None if record.own_broker else record.amqp_url
    plan = plan_fleet(record.options, start.folder.broker, url, drain_grace_s)
    with view.open():
        start.wait(plan, timeout_s)
    return record


def land() -> list[str] | None:
    """Stop the fleet that was started here. None if there was none; else what had to go the hard way."""
    folder = FleetFolder.here()
    record = folder.record()
    start = FleetStart(folder, say, lambda _: None)
    if record is None:
        left = start.stop_unrecorded()
        return left or None
    return start.stop(record)
