"""What `up` and `demo` share: make missing models, start the fleet or what is down of it, show progress."""

from __future__ import annotations

from pathlib import Path

from services.cli.console import err, say
from services.cli.exit_codes import CommandError
from services.cli.fleet_folder import FleetFolder, FleetRecord
from services.cli.fleet_options import FleetOptions
from services.cli.fleet_plan import plan_fleet
from services.cli.fleet_processes import supervisor_process
from services.cli.fleet_start import FleetStart
from services.cli.models_make import make_models
from services.cli.standing_view import StandingView
from services.cli.supervisord import Supervisor
from services.settings import FleetSettings

MODELS_FOLDER = Path("models")


def launch(options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool) -> FleetRecord:
    """Returns when every service is ready. Raises CommandError, BusError, TimedOut.

    A fleet that is up already keeps its options; where others are insisted on, that is an error.
    """
    folder = FleetFolder.here()
    settings = FleetSettings.read()
    view = StandingView(err)
    start = FleetStart(folder, say, view.show)
    record = folder.record()
    if record and supervisor_process(record):
        if insist and record.options != options:
            raise CommandError("a fleet with other options is up here: `ratchet down` first, or `ratchet status`")
        return _complete(record, start, view, settings.drain_grace_s, timeout_s)
    plan = plan_fleet(options, folder.broker, amqp_url, settings.drain_grace_s)
    if options.models_to_make:
        say("making the models (about a minute, once) …")
        make_models(MODELS_FOLDER, say)
    with view.open():
        return start.start(plan, options, settings, timeout_s)


def is_up() -> bool:
    """Whether a fleet that was started here is running."""
    record = FleetFolder.here().record()
    return record is not None and supervisor_process(record) is not None


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
