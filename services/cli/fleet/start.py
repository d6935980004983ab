"""Start the fleet or what is down of it, with its models, wait until it works, show how far it is, stop it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from services.cli.fleet.ports import on_other_ports, stop_leftovers, stop_supervisor, supervisor_process, taken_ports
from services.cli.fleet.readiness import ReadinessView, Waiting
from services.cli.fleet.supervisord import Supervisor, render, start_supervisord
from services.cli.models import make_models
from services.cli.terminal import CommandError, err, say

SUPERVISOR_TIMEOUT_S = 15.0
MODELS_FOLDER = Path("models")


def start_fleet(options: FleetOptions, amqp_url: str | None, timeout_s: float, *, insist: bool) -> FleetRecord:
    """Returns when every service is ready. Raises CommandError, BusError, TimedOut.

    A fleet that is up already keeps its options; where others are insisted on, that is an error.
    """
    folder = FleetFolder.here()
    with _alone(folder):
        for sentence in unknown_names(os.environ):
            say(f"warning: {sentence}")
        require_usable(variables(options))
        settings = FleetSettings.read()
        refuse_wrong_storage(settings.logs_dir, settings.index_folder, settings.adapters_dir)
        record = folder.record()
        if record is None or supervisor_process(record) is None:
            return _start_anew(folder, options, settings, amqp_url, timeout_s)
        if insist and record.options != options:
            raise CommandError("a fleet with other options is up here: `ratchet down` first, or `ratchet status`")
        return _complete(folder, record, settings.drain_grace_s, timeout_s)


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


def _start_anew(
    folder: FleetFolder, options: FleetOptions, settings: FleetSettings, amqp_url: str | None, timeout_s: float
) -> FleetRecord:
    """Find out first what would keep it from starting, before anything that takes time; what was started is stopped
    again where it does not get ready."""
    users = private_users(options, settings.namespace) if settings.api_public_keys is not None else ()
    plan = plan_fleet(options, folder.broker, amqp_url, settings.drain_grace_s, users)
    for name in options.models_to_find:
        require_model(name)
    if plan.broker:
        plan.broker.require_installed()
    else:
        with open_connection(plan.amqp_url):
            pass  # it answers
    if left := _stop_unrecorded(folder):
        say(f"stopped what an earlier fleet had left behind: {', '.join(left)}")
    require_ports(plan, options, amqp_url)
    if options.models_to_make:
        say("making the models (about a minute, once) …")
        make_models(MODELS_FOLDER, say)
    _write_config(folder, plan)
    record = _record(folder, start_supervisord(folder, plan.environment).pid, plan, options, settings)
    folder.write_record(record)
    folder.write_settings(settings)
    try:
        _await_supervisor(folder)
        _wait(folder, plan, timeout_s, lambda: declare_queues(plan, options, settings.namespace, timeout_s))
    except BaseException:
        _stop(folder, record)
        raise
    return record


def _write_config(folder: FleetFolder, plan: FleetPlan) -> None:
    folder.root.mkdir(parents=True, exist_ok=True)
    if plan.broker:
        plan.broker.prepare()
    write_private(folder.supervisor_config, render(folder, Path.cwd(), plan.broker_program, plan.services_with_urls))


def _record(
    folder: FleetFolder, pid: int, plan: FleetPlan, options: FleetOptions, settings: FleetSettings
) -> FleetRecord:
    ports = ({"broker": None} if plan.broker else {}) | {one.name: one.http_port for one in plan.services}
    return FleetRecord(
        supervisor_pid=pid,
        supervisor_started=psutil.Process(pid).create_time(),
        stop_timeout_s=plan.stop_timeout_s,
        amqp_url=plan.amqp_url,
        namespace=settings.namespace,
        own_broker=plan.broker is not None,
        logs_dir=settings.logs_dir.absolute(),
        options=options,
        programs=tuple(
            StartedProgram(name=name, http_port=port, log=folder.process_logs / f"{name}.log")
            for name, port in ports.items()
        ),
    )


def _await_supervisor(folder: FleetFolder) -> None:
    deadline = time.monotonic() + SUPERVISOR_TIMEOUT_S
    supervisor = Supervisor(folder)
    while not supervisor.answers():
        if time.monotonic() > deadline:
            raise CommandError(f"the supervisor did not start; see {folder.process_logs / 'supervisor.out'}")
        time.sleep(0.1)


def _complete(folder: FleetFolder, record: FleetRecord, drain_grace_s: float, timeout_s: float) -> FleetRecord:
    """A fleet that is up stays as it is; what is down of it is started again."""
    started = Supervisor(folder).start_what_is_down()
    say(f"already up; started again: {', '.join(started)}" if started else "already up")
    url = None if record.own_broker else record.amqp_url
    guarded = urlsplit(record.amqp_url).username == SETUP
    users = private_users(record.options, record.namespace) if guarded else ()
    _wait(folder, plan_fleet(record.options, folder.broker, url, drain_grace_s, users), timeout_s)
    return record


def _wait(folder: FleetFolder, plan: FleetPlan, timeout_s: float, declare: Callable[[], None] = lambda: None) -> None:
    """Wait until every service of the plan is ready; `declare` is called once the broker answers.

    Raises CommandError, TimedOut.
    """
    programs = (plan.broker_program, *plan.services) if plan.broker_program else plan.services

    def answers(broker: LocalBroker) -> bool:
        if not broker.answers():
            return False
        declare()
        return True

    answering = partial(answers, plan.broker) if plan.broker else None
    view = ReadinessView(err)
    with view.open():
        waiting = Waiting(programs, folder.process_logs, Supervisor(folder).processes, view.show, answering)
        waiting.until_ready(timeout_s)


def require_ports(plan: FleetPlan, options: FleetOptions, amqp_url: str | None) -> None:
    """Raises CommandError where a port of the plan, which is of these options, is taken, with what to type instead."""

    def ports_of(moved: FleetOptions) -> Iterable[int]:
        return plan_fleet(moved, FleetFolder.here().broker, amqp_url, 0.0).ports

    if taken := taken_ports(plan.ports):
        instead = on_other_ports(options, ports_of, sys.argv[1:], os.environ)
        raise CommandError(f"taken: port {', port '.join(taken)}. Free them, or start on others: {instead}")


def make_way(options: FleetOptions, amqp_url: str | None) -> None:
    """Stop the fleet that was started here, before what takes minutes; raises CommandError where the ports that one of
    these options needs are taken all the same."""
    stop_fleet()
    require_ports(plan_fleet(options, FleetFolder.here().broker, amqp_url, 0.0), options, amqp_url)


def stop_fleet() -> list[str] | None:
    """Stop the fleet that was started here. None if there was none; else what had to go the hard way."""
    folder = FleetFolder.here()
    record = folder.record()
    return _stop(folder, record) if record else _stop_unrecorded(folder) or None


def _stop(folder: FleetFolder, record: FleetRecord) -> list[str]:
    """Returns what went on the hard way: outlived its supervisor, or had to be killed."""
    remarks: list[str] = []
    if (process := supervisor_process(record)) and not stop_supervisor(process, record.stop_timeout_s):
        remarks.append(f"supervisor ({record.supervisor_pid}) did not end in time and was killed")
    remarks += _stop_unrecorded(folder)
    folder.record_file.unlink(missing_ok=True)
    folder.socket.unlink(missing_ok=True)
    return remarks


def _stop_unrecorded(folder: FleetFolder) -> list[str]:
    """End what runs without a supervisor; Erlang's port mapper always does, so it is not reported."""
    return [left for left in stop_leftovers(folder) if not left.startswith("epmd")]
