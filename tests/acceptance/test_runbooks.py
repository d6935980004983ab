"""Critical alerts on a real fleet: its fault makes the alert fire, what the runbook says ends it, nothing is lost.

A Prometheus with our rules scrapes the fleet each second; what is left out is the time that an alert waits. The
broker's disk is said to be of 2 MB, so that queues are full by bytes, and soon.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from demos.toy.byte_tokenizer import byte_tokenizer
from ratchet.client import Fleet as Client
from ratchet.service.errors import TimedOut
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, REPOSITORY, RUNNER, SCORER, Fleet
from tests.acceptance.ratchet_command import ForkedRatchet, Ran, Ratchet
from tests.disks import MayNotMount, mounted_disk
from tests.infra.measured_broker import MeasuredBroker
from tests.infra.prometheus.server import firing, prometheus
from tests.private_broker import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

FIRES_S = 120.0
DISK = 64 * 2**20
BROKER_DISK = {"RATCHET_BROKER_DISK_GB": "0.002", "RATCHET_ORCHESTRATOR_PREFETCH": "8"}
"""With it 60 kB of Work may wait for an agent, and 160 kB of tasks for the orchestrator, which has few in hand."""
CODER = f"{AGENT}-coder"
"""An agent whose tasks programs answer, so the runner works for it."""
TARGETS, READY = 7, 4
"""Processes that are scraped; those of them (agents, scorer, runner) whose readiness the rules remember."""


@dataclass(frozen=True)
class Watched:
    """A fleet, its broker, and the Prometheus that watches it."""

    fleet: Fleet
    broker: MeasuredBroker
    address: str
    second_port: int
    ratchet: Ratchet

    def wait_for(self, alert: str) -> dict[str, str]:
        return wait_until(lambda: firing(self.address).get(alert), f"{alert} fires", FIRES_S)

    def wait_for_queue(self, alert: str, queue: str) -> None:
        wait_until(lambda: firing(self.address).get(alert, {}).get("queue") == queue, f"{alert} of {queue}", FIRES_S)

    def wait_until_over(self, alert: str) -> None:
        wait_until(lambda: alert not in firing(self.address), f"{alert} is over", FIRES_S)

    def submit(self, task_id: str, *options: str) -> Ran:
        return self.ratchet("submit", "hello", "--task-id", task_id, "--reference", "hello", *options)

    def is_answered(self, task_id: str) -> bool:
        known = json.loads(self.fleet[ORCHESTRATOR].get(f"/v1/tasks/{task_id}")[1])
        return (known.get("result") or {}).get("status") == "ok"

    def restart(self, name: str) -> None:
        self.fleet[name].start()
        self.fleet[name].wait_until_ready()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    broker = MeasuredBroker.on_free_ports(folder / "rabbitmq")
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        with mounted_disk(folder / "logs", DISK):
            fleet = with_programs(folder, broker.url).start()
            second = free_port()
            jobs = {name: [f"127.0.0.1:{fleet[name].port}"] for name in (ORCHESTRATOR, AGENT, SCORER, RUNNER)}
            jobs[ORCHESTRATOR].append(f"127.0.0.1:{second}")
            jobs[AGENT].append(f"127.0.0.1:{fleet[CODER].port}")
            jobs["rabbitmq"] = jobs["rabbitmq-queues"] = [f"127.0.0.1:{broker.metrics_port}"]
            ratchet = ForkedRatchet(
                folder, {**fleet[ORCHESTRATOR].environment, "RATCHET_STATE_DIR": str(folder / "state")}
            )
            try:
                with prometheus(folder / "prometheus", jobs, hurry=True) as address:
                    wait_until(lambda: known(address) == TARGETS + READY, "every process is known", FIRES_S)
                    yield Watched(fleet, broker, address, second, ratchet)
            finally:
                fleet.kill()
    except MayNotMount as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    finally:
        broker.stop(node)


def with_programs(folder: Path, amqp_url: str) -> Fleet:
    byte_tokenizer(8192).save_pretrained(folder / "tokenizer")
    (folder / "tokenizer" / "config.json").write_text("{}")
    (folder / "programs.toml").write_text('[agents.coder]\nprograms = ["shell"]\n')
    environment = {"RATCHET_AGENT_TOKENIZER": str(folder / "tokenizer"), **BROKER_DISK}
    agents, programs = ("small", "coder"), folder / "programs.toml"
    return Fleet(folder, amqp_url, agents=agents, programs=programs, environment=environment, forked=True)


def known(address: str) -> int:
    """How many targets answer, plus how many it remembers as ready; the second orchestrator is not there yet."""
    with urlopen(f"{address}/api/v1/query?query=sum(up)%2Bcount(ratchet:was_ready)", timeout=10) as answer:
        found = json.loads(answer.read())["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def runbook(alert: str) -> str:
    """The section that the alert links to."""
    found = re.search(rf"^### {alert}\n(.*?)(?=^##)", (REPOSITORY / "docs/operations.md").read_text(), re.M | re.S)
    assert found
    return found[1]


def test_nothing_is_answered_until_what_hangs_is_restarted(watched: Watched) -> None:
    """First of all: for this alert no task may have been answered within ten minutes."""
    os.kill(watched.fleet[AGENT].pid, signal.SIGSTOP)
    for number in range(3):
        watched.submit(f"hung-{number}", "--no-wait")

    watched.wait_for("RatchetNothingAnswered")
    assert "restart that process" in runbook("RatchetNothingAnswered")
    watched.fleet[AGENT].kill()
    watched.restart(AGENT)

    watched.wait_until_over("RatchetNothingAnswered")
    assert watched.submit("hung-0").code == 0


def test_a_dead_scorer_is_named_by_its_target_and_by_its_queue(watched: Watched) -> None:
    watched.fleet[SCORER].kill()
    watched.submit("unscored", "--no-wait")

    assert watched.wait_for("RatchetServiceDown")["job"] == SCORER
    watched.wait_for_queue("RatchetQueueUnconsumed", "responses")
    assert "`responses`: no scorer" in runbook("RatchetQueueUnconsumed")
    watched.restart(SCORER)

    watched.wait_until_over("RatchetServiceDown")
    watched.wait_until_over("RatchetQueueUnconsumed")
    assert watched.submit("unscored").code == 0


def test_an_agent_that_is_gone_is_started_again(watched: Watched) -> None:
    watched.fleet[AGENT].kill()

    assert watched.wait_for("RatchetAgentLost")["queue"] == "work.small"
    watched.restart(AGENT)

    watched.wait_until_over("RatchetAgentLost")


def test_a_runner_that_is_not_ready_names_the_agent_that_is_away(watched: Watched) -> None:
    watched.fleet[CODER].kill()
    asked = watched.submit("away", "--agent", "coder", "--no-wait")
    assert asked.code == 0, asked

    assert watched.wait_for("RatchetNotReady")["job"] == RUNNER
    assert "`/readyz` says why" in runbook("RatchetNotReady")
    assert "agent coder does not serve its model" in watched.fleet[RUNNER].get("/readyz")[1]
    watched.restart(CODER)

    watched.wait_until_over("RatchetNotReady")
    assert watched.submit("away").code == 0


def test_a_runner_that_is_gone_is_started_again(watched: Watched) -> None:
    runner = watched.fleet[RUNNER]
    runner.kill()
    watched.fleet[CODER].kill()
    asked = watched.submit("without-a-runner", "--agent", "coder", "--no-wait")
    assert asked.code == 0, asked

    assert watched.wait_for("RatchetNoRunner")["queue"] == "work.coder"
    runner.start()
    assert "*does not answer* at `/readyz`" in runbook("RatchetNoRunner")
    wait_until(lambda: "agent coder does not answer" in runner.get("/readyz")[1], "it waits for its agent", FIRES_S)
    watched.restart(CODER)
    runner.wait_until_ready()

    watched.wait_until_over("RatchetNoRunner")
    assert watched.submit("without-a-runner").code == 0


def test_a_sandbox_that_is_refused_says_what_mends_it(watched: Watched) -> None:
    """The alert ends 15 minutes after the last refusal: what ends here is that tasks wait."""
    runner = watched.fleet[RUNNER]
    runner.kill()
    runner.start({"RATCHET_SANDBOX_ISOLATION": "pod"})
    asked = watched.submit("refused", "--agent", "coder", "--no-wait")
    assert asked.code == 0, asked

    assert watched.wait_for("RatchetSandboxRefused")["job"] == RUNNER
    watched.wait_for("RatchetNoRunner")
    wait_until(lambda: runner.exit_code is not None, "the runner ended", FIRES_S)
    assert "Its last log line" in runbook("RatchetSandboxRefused")
    assert "RATCHET_SANDBOX_ISOLATION=pod, but " in runner.log_tail(1)
    watched.restart(RUNNER)

    watched.wait_until_over("RatchetNoRunner")
    assert watched.submit("refused").code == 0


def test_without_a_leader_readyz_says_why_and_a_new_one_takes_over(watched: Watched) -> None:
    watched.fleet[ORCHESTRATOR].kill()
    watched.submit("leaderless", "--no-wait")

    watched.wait_for("RatchetNoLeader")
    assert watched.fleet[ORCHESTRATOR].get("/readyz")[0] == 0
    watched.restart(ORCHESTRATOR)

    watched.wait_until_over("RatchetNoLeader")
    assert watched.submit("leaderless").code == 0


def test_of_two_leaders_one_is_stopped_and_the_ledger_verified(watched: Watched) -> None:
    first = watched.fleet[ORCHESTRATOR]
    elsewhere = {
        "RATCHET_LOGS_DIR": str(watched.fleet.folder / "other-logs"),
        "RATCHET_ADAPTERS_DIR": str(watched.fleet.folder / "other-adapters"),
        "RATCHET_ORCHESTRATOR_HTTP_PORT": str(watched.second_port),
    }
    log = watched.fleet.folder / "second.log"
    second = replace(first, port=watched.second_port, environment=first.environment | elsewhere, log=log, process=None)
    second.start()
    try:
        watched.wait_for("RatchetTwoLeaders")
        assert "Stop one now" in runbook("RatchetTwoLeaders")
    finally:
        second.kill()

    watched.wait_until_over("RatchetTwoLeaders")
    verified = watched.ratchet("adapters", "verify")
    assert verified.code == 0, verified.err


def test_a_broker_that_is_short_of_memory_goes_on_once_it_has_room(watched: Watched) -> None:
    watched.broker.control("set_vm_memory_high_watermark", "absolute", "1MB")

    watched.wait_for("RatchetBrokerAlarm")
    watched.broker.control("set_vm_memory_high_watermark", "0.9")

    watched.wait_until_over("RatchetBrokerAlarm")
    assert watched.submit("after-the-alarm").code == 0


def test_a_full_disk_is_enlarged(watched: Watched) -> None:
    filler = watched.fleet.logs / "filler"
    filler.write_bytes(b"x" * (DISK * 95 // 100))

    assert watched.wait_for("RatchetDiskLow")["folder"] == "logs"
    assert "Enlarge the disk" in runbook("RatchetDiskLow")
    may = () if os.geteuid() == 0 else ("sudo", "-n")
    subprocess.run([*may, "mount", "-o", f"remount,size={4 * DISK}", watched.fleet.logs], check=True)

    watched.wait_until_over("RatchetDiskLow")
    assert watched.submit("after-the-disk").code == 0


def test_a_budget_that_burns_fast_is_explained_by_the_results(watched: Watched) -> None:
    os.kill(watched.fleet[AGENT].pid, signal.SIGSTOP)
    late = "".join(f'{{"task_id": "late-{number}", "input": "hello"}}\n' for number in range(12))
    watched.ratchet("submit", "--file", "-", "--no-wait", "--deadline", "1", stdin=late)

    assert watched.wait_for("RatchetBudgetBurnsFast")["objective"] == "availability"
    os.kill(watched.fleet[AGENT].pid, signal.SIGCONT)
    explained = watched.ratchet("result", "late-0")

    assert "`ratchet result TASK_ID` gives the reason" in runbook("RatchetBudgetBurnsFast")
    assert "no answer within" in explained.out + explained.err


def test_a_broker_that_was_away_is_found_again(watched: Watched) -> None:
    watched.broker.control("stop_app")

    watched.wait_for("RatchetBrokerUnreachable")
    watched.broker.control("start_app")

    watched.wait_until_over("RatchetBrokerUnreachable")
    assert watched.submit("after-the-broker").code == 0


def test_a_queue_that_is_nearly_full_is_worked_off_once_something_consumes_it(watched: Watched) -> None:
    """Work fills up behind an agent that is gone, then the tasks behind Work, until the client's are refused."""
    alert, accepted = "RatchetQueueNearlyFull", list[str]()
    watched.fleet[AGENT].kill()
    with Client(watched.broker.url, stall_s=10, replies=False) as client:

        def fill(count: int) -> None:
            for number in range(len(accepted), len(accepted) + count):
                accepted.append(client.submit("x" * 4000, task_id=f"full-{number}", samples=1, reference="x"))

        fill(12)  # each is 4.4 kB as Work
        watched.wait_for_queue(alert, "work.small")
        with pytest.raises(TimedOut, match="the queue 'tasks' refuses messages: it is full"):
            fill(1000)
    assert len(accepted) < 100
    assert "Start or scale what consumes it" in runbook(alert)
    watched.restart(AGENT)

    watched.wait_until_over(alert)
    wait_until(lambda: all(map(watched.is_answered, accepted)), "all that was accepted is answered", FIRES_S)
