"""A Lease of Kubernetes says who leads, whoever writes it at the same time; where nobody answers, the folder does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ratchet.logs.kubernetes_lease import KubernetesLease
from ratchet.logs.leadership import Leadership
from ratchet.service.errors import LeadershipLost, StorageUnavailable
from tests.ratchet.logs.lease_server import LeaseServer, certificate, lease_server
from tests.ratchet.logs.test_leadership import LEASE_S, Seconds


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def candidate(server: LeaseServer, seconds: Seconds, holder: str) -> KubernetesLease:
    return KubernetesLease(
        server.url, "fleet", "orchestrator", lease_s=LEASE_S, token=lambda: "t", holder=holder, seconds=seconds
    )


def acquires_after(lease: KubernetesLease, seconds: Seconds, most_s: float = 3 * LEASE_S) -> float:
    """Seconds until it is held."""
    began = seconds.now
    while not lease.try_acquire():
        seconds.now += 1
        assert seconds.now - began < most_s
    return seconds.now - began


def test_the_first_makes_the_lease_and_the_next_takes_it_once_it_was_not_renewed_for_its_duration(
    server: LeaseServer, seconds: Seconds
) -> None:
    first, second = (candidate(server, seconds, name) for name in ("first", "second"))
    assert acquires_after(first, seconds) == 0

    for _ in range(30):
        assert not second.try_acquire()
        seconds.now += 1
        assert first.renew()
    taken_after = acquires_after(second, seconds)

    assert LEASE_S - 1 <= taken_after <= LEASE_S + 1
    spec = server.leases["orchestrator"]["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("second", 1, 10)
    assert datetime.fromisoformat(spec["renewTime"]).tzinfo is not None
    assert not first.renew() and second.renew()


def test_of_two_that_write_at_the_same_time_one_gets_it(server: LeaseServer, seconds: Seconds) -> None:
    server.write("orchestrator", holderIdentity="", leaseTransitions=4)
    slow, quick = (candidate(server, seconds, name) for name in ("slow", "quick"))

    def be_quick() -> None:
        server.before_write = lambda: None
        assert quick.try_acquire()

    server.before_write = be_quick

    assert not slow.try_acquire()
    assert server.leases["orchestrator"]["spec"]["holderIdentity"] == "quick"
    assert quick.renew()


def test_what_an_operator_writes_to_it_takes_it_from_nobody(server: LeaseServer, seconds: Seconds) -> None:
    first = candidate(server, seconds, "first")
    assert first.try_acquire()

    server.write("orchestrator")  # an annotation, say

    assert first.renew() and first.renew()


def test_what_is_released_is_taken_at_once(server: LeaseServer, seconds: Seconds) -> None:
    first, second = (candidate(server, seconds, name) for name in ("first", "second"))
    assert first.try_acquire()

    first.release()

    assert acquires_after(second, seconds) == 0


def test_a_standby_does_not_ask_all_the_time(server: LeaseServer, seconds: Seconds) -> None:
    first, second = (candidate(server, seconds, name) for name in ("first", "second"))
    assert first.try_acquire()
    asked = len(server.tokens)

    for _ in range(100):
        assert not second.try_acquire()
        seconds.now += 0.01

    assert len(server.tokens) - asked <= 2


def test_the_token_is_read_for_each_request_and_a_refusal_is_a_sentence(server: LeaseServer) -> None:
    tokens = iter(("old", "new", "newest"))
    lease = KubernetesLease(server.url, "fleet", "orchestrator", lease_s=LEASE_S, token=lambda: next(tokens))
    assert lease.try_acquire()
    assert server.tokens == ["Bearer old", "Bearer new"]

    server.refuses = 403

    with pytest.raises(StorageUnavailable, match="must be allowed to get, create and update leases"):
        lease.renew()


def test_it_is_for_a_pod(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="RATCHET_LEASE is for a pod"):
        KubernetesLease.of_pod("orchestrator", lease_s=LEASE_S, files=tmp_path)


def test_a_pod_finds_server_certificate_token_and_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = certificate(tmp_path)
    (tmp_path / "namespace").write_text("fleet")
    (tmp_path / "token").write_text("of-the-pod\n")
    with lease_server(tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])

        lease = KubernetesLease.of_pod("orchestrator", lease_s=LEASE_S, files=tmp_path)

        assert lease.try_acquire() and lease.renew()
        assert set(server.tokens) == {"Bearer of-the-pod"}
        lease.release()


def test_who_gets_the_lease_leads_though_the_other_hangs_with_the_folder_in_hand(
    server: LeaseServer, seconds: Seconds, tmp_path: Path
) -> None:
    hangs, next_one = (
        Leadership(tmp_path, lease_s=LEASE_S, seconds=seconds, arbiter=candidate(server, seconds, name))
        for name in ("hangs", "next")
    )
    assert hangs.try_lead() and not next_one.try_lead()
    hangs.renew()

    for _ in range(int(2 * LEASE_S)):
        if next_one.try_lead():
            break
        seconds.now += 1

    next_one.check()
    assert (hangs.epoch, next_one.epoch, next_one.must_seal) == (1, 2, True)
    with pytest.raises(LeadershipLost):
        hangs.renew()
    next_one.release()
    hangs.release()


def test_without_an_answer_the_folder_says_who_leads(seconds: Seconds, tmp_path: Path) -> None:
    with lease_server() as server:
        first, second = (
            Leadership(tmp_path, lease_s=LEASE_S, seconds=seconds, arbiter=candidate(server, seconds, name))
            for name in ("first", "second")
        )
        assert first.try_lead()

    for _ in range(int(2 * LEASE_S)):
        first.renew()
        seconds.now += 1
        assert not second.try_lead()
    first.release()

    assert second.try_lead()
    second.release()
