"""Start the fleet or what is down of it, with its models, wait until it works, show how far it is, stop it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from ratchet.bus.accounts import SETUP
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.files.file_system import refuse_wrong_storage
from ratchet.files.folder_lock import FolderLock
from ratchet.models.known import require_model
from ratchet.service.settings import FleetSettings
from ratchet.service.settings_check import require_usable, unknown_names
from services.cli.fleet.folder import FleetFolder, FleetRecord, StartedProgram, write_private
from services.cli.fleet.local_broker import LocalBroker
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.plan import FleetPlan, declare_queues, plan_fleet, private_users, variables
from services.cli.fleet.ports import on_other_ports, require_free, stop_leftovers, stop_supervisor, supervisor_process
from services.cli.fleet.readiness import Progress, ReadinessView, Waiting
from services.cli.fleet.supervisord import Supervisor, render, start_supervisord
from services.cli.models import make_models
from services.cli.terminal import CommandError, err, say

SUPERVISOR_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class FleetStart:
    """`say` gets remarks, `show` the progress of each program while it is waited for."""

    folder: FleetFolder
    say: Callable[[str], None]
    show: Callable[[Progress], None]

    def preflight(self, plan: FleetPlan, options: FleetOptions, amqp_url: str | None) -> None:
        """Find out, before anything that takes time, what would keep it from starting.

        Raises BusError for a broker that is not installed or does not answer, CommandError for a taken port.
        """
        self._check_broker(plan)
        self._stop_leftovers()
        require_ports(plan, options, amqp_url)

    def start(self, plan: FleetPlan, options: FleetOptions, settings: FleetSettings, timeout_s: float) -> FleetRecord:
        """Start the fleet, after `make_way`. Raises CommandError, BusError or TimedOut, with all stopped again."""
        self._write_config(plan)
        process = start_supervisord(self.folder, plan.environment)
        record = self._record(process.pid, plan, options, settings)
        self.folder.write_record(record)
        self.folder.write_settings(settings)
        try:
            self._await_supervisor()
            self.wait(plan, timeout_s, lambda: declare_queues(plan, options, settings.namespace, timeout_s))
        except BaseException:
            self.stop(record)
            raise
        return record

    def wait(self, plan: FleetPlan, timeout_s: float, declare: Callable[[], None] = lambda: None) -> None:
        """Wait until every service of the plan is ready; `declare` is called once the broker answers.

        Raises CommandError, TimedOut.
        """
        supervisor = Supervisor(self.folder)
        programs = (plan.broker_program, *plan.services) if plan.broker_program else plan.services

        def answers(broker: LocalBroker) -> bool:
            if not broker.answers():
                return False
            declare()
            return True

        answering = partial(answers, plan.broker) if plan.broker else None
        Waiting(programs, self.folder.process_logs, supervisor.processes, self.show, answering).until_ready(timeout_s)

    def stop(self, record: FleetRecord) -> list[str]:
        """Returns what went on the hard way: outlived its supervisor, or had to be killed."""
        remarks: list[str] = []
        if (process := supervisor_process(record)) and not stop_supervisor(process, record.stop_timeout_s):
            remarks.append(f"supervisor ({record.supervisor_pid}) did not end in time and was killed")
        remarks += self.stop_unrecorded()
        self.folder.record_file.unlink(missing_ok=True)
        self.folder.socket.unlink(missing_ok=True)
        return remarks

    def stop_unrecorded(self) -> list[str]:
        """End what runs without a supervisor; Erlang's port mapper always does, so it is not reported."""
        return [left for left in stop_leftovers(self.folder) if not left.startswith("epmd")]

    def _stop_leftovers(self) -> None:
        if left := self.stop_unrecorded():
            self.say(f"stopped what an earlier fleet had left behind: {', '.join(left)}")

    def _check_broker(self, plan: FleetPlan) -> None:
        """A broker of our own must be installed; another must answer now."""
        if plan.broker is None:
            with open_connection(plan.amqp_url):
                return
        plan.broker.require_installed()

    def _write_config(self, plan: FleetPlan) -> None:
        self.folder.root.mkdir(parents=True, exist_ok=True)
        if plan.broker:
            plan.broker.prepare()
        text = render(self.folder, Path.cwd(), plan.broker_program, plan.services_with_urls)
        write_private(self.folder.supervisor_config, text)

    def _record(self, pid: int, plan: FleetPlan, options: FleetOptions, settings: FleetSettings) -> FleetRecord:
        broker_log = [StartedProgram(name="broker", http_port=None, log=self._log("broker"))] if plan.broker else []
        services = [StartedProgram(name=s.name, http_port=s.http_port, log=self._log(s.name)) for s in plan.services]
        return FleetRecord(
            supervisor_pid=pid,
            supervisor_started=psutil.Process(pid).create_time(),
            stop_timeout_s=plan.stop_timeout_s,
            amqp_url=plan.amqp_url,
            namespace=settings.namespace,
            own_broker=plan.broker is not None,
            logs_dir=settings.logs_dir.absolute(),
            options=options,
            programs=(*broker_log, *services),
        )

    def _log(self, name: str) -> Path:
        return self.folder.process_logs / f"{name}.log"

    def _await_supervisor(self) -> None:
        deadline = time.monotonic() + SUPERVISOR_TIMEOUT_S
        supervisor = Supervisor(self.folder)
        while not supervisor.answers():
            if time.monotonic() > deadline:
                raise CommandError(f"the supervisor did not start; see {self.folder.process_logs / 'supervisor.out'}")
            time.sleep(0.1)


MODELS_FOLDER = Path("models")


def require_ports(plan: FleetPlan, options: FleetOptions, amqp_url: str | None) -> None:
    """Raises CommandError where a port of the plan, which is of these options, is taken, with what to type instead."""

    def ports_of(moved: FleetOptions) -> Iterable[int]:
        return plan_fleet(moved, FleetFolder.here().broker, amqp_url, 0.0).ports

    require_free(plan.ports, lambda: on_other_ports(options, ports_of, sys.argv[1:], os.environ))


def make_way(options: FleetOptions, amqp_url: str | None) -> None:
    """Stop the fleet that was started here, before what takes minutes; raises CommandError where the ports that one of
    these options needs are taken all the same."""
    stop_fleet()
    require_ports(plan_fleet(options, FleetFolder.here().broker, amqp_url, 0.0), options, amqp_url)


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
    require_usable(variables(options))
    settings = FleetSettings.read()
    refuse_wrong_storage(settings.logs_dir, settings.index_folder, settings.adapters_dir)
    view = ReadinessView(err)
    start = FleetStart(folder, say, view.show)
    record = folder.record()
    if record and supervisor_process(record):
        if insist and record.options != options:
            raise CommandError("a fleet with other options is up here: `ratchet down` first, or `ratchet status`")
        return _complete(record, start, view, settings.drain_grace_s, timeout_s)
    users = private_users(options, settings.namespace) if settings.api_public_keys is not None else ()
    plan = plan_fleet(options, folder.broker, amqp_url, settings.drain_grace_s, users)
    for name in options.models_to_find:
        require_model(name)
    start.preflight(plan, options, amqp_url)
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
    guarded = urlsplit(record.amqp_url).username == SETUP
    users = private_users(record.options, record.namespace) if guarded else ()
    plan = plan_fleet(record.options, start.folder.broker, url, drain_grace_s, users)
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
