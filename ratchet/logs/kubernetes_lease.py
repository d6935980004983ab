"""A Lease of Kubernetes that says who may lead: coordination.k8s.io/v1, over HTTP.

Its holder renews it; another takes it once it was not renewed for its duration, counted on the other's own clock. The
API server refuses a change of a Lease that has changed meanwhile (409), so one of two candidates gets it. The files of
the logs stay fenced by ratchet/logs/leadership.py: a holder that hangs writes nothing once another leads.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import httpx

from ratchet.service.errors import StorageUnavailable

POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which a pod finds its token, the server's certificate and its namespace."""
ANSWER_S = 2.0
LOOKS = 10
"""Looks at a Lease that another holds, in the time of one."""


class KubernetesLease:
    """One candidate's. Its methods block, and may be called from one thread at a time."""

    def __init__(
        self,
        server: str,
        namespace: str,
        name: str,
        *,
        lease_s: float,
        token: Callable[[], str],
        verify: ssl.SSLContext | bool = True,
        holder: str = "",
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`token` is asked for each request, since the kubelet changes it. `holder` names this process."""
        self._leases = f"{server}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._lease_s = lease_s
        self._token = token
        self._http = httpx.Client(timeout=ANSWER_S, verify=verify, trust_env=False)
        self._holder = holder or f"{socket.gethostname()}/{os.getpid()}"
        self._seconds = seconds
        self._seen: tuple[object, ...] | None = None
        self._seen_at = 0.0
        self._asked_at = float("-inf")
        self._trouble: StorageUnavailable | None = None
        """The reason why the last request was not answered."""
        self._held: dict[str, Any] | None = None
        """The Lease as we last wrote it."""

    @classmethod
    def of_pod(cls, name: str, *, lease_s: float, files: Path = POD_FILES) -> Self:
        """Return that of the pod's namespace. Raises StorageUnavailable where this is no pod with a token."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            namespace = (files / "namespace").read_text("utf-8").strip()
            verify = ssl.create_default_context(cafile=str(files / "ca.crt"))
        except OSError as error:
            raise StorageUnavailable(f"RATCHET_LEASE is for a pod with a token of its account: {error}") from None
        if host is None:
            raise StorageUnavailable("RATCHET_LEASE is for a pod: there is no KUBERNETES_SERVICE_HOST")
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        read = (files / "token").read_text
        return cls(server, namespace, name, lease_s=lease_s, token=lambda: read("utf-8").strip(), verify=verify)

    def try_acquire(self) -> bool:
        """True once this process holds it. Raises StorageUnavailable if the API server does not do what it is asked.

        It asks a few times in the duration of a lease; in between the answer is False.
        """
        if self._held is not None:
            return True
        if self._seconds() - self._asked_at < self._lease_s / LOOKS:
            if self._trouble is not None:
                raise self._trouble
            return False
        self._asked_at = self._seconds()
        known = self._ask("GET", f"/{self._name}")
        if known is None:
            return self._put("POST", "", {"metadata": {"name": self._name}}, transitions=0)
        spec = known.get("spec") or {}
        now, looks = (
            self._seconds(),
            tuple(spec.get(key) for key in ("holderIdentity", "renewTime", "leaseTransitions")),
        )
        if looks != self._seen:
            self._seen, self._seen_at = looks, now
        lasts_s = float(spec.get("leaseDurationSeconds") or self._lease_s)
        if spec.get("holderIdentity") not in ("", None, self._holder) and now - self._seen_at < lasts_s:
            return False
        return self._put("PUT", f"/{self._name}", known, transitions=int(spec.get("leaseTransitions") or 0) + 1)

    def renew(self) -> bool:
        """A sign of life; False once another holds it. Raises StorageUnavailable while nobody answers."""
        if self._held is None:
            return False
        transitions = int(self._held["spec"]["leaseTransitions"])
        if self._put("PUT", f"/{self._name}", self._held, transitions=transitions):
            return True
        known = self._ask("GET", f"/{self._name}")  # somebody else wrote it: an operator's note, or another leader
        is_ours = known is not None and (known.get("spec") or {}).get("holderIdentity") == self._holder
        self._held = known if is_ours else None
        return is_ours

    def release(self) -> None:
        """Give it up, so that the next one need not wait. Harmless where it is not held, or nobody answers."""
        if self._held is not None:
            with suppress(StorageUnavailable):  # it runs out by itself
                self._put("PUT", f"/{self._name}", self._held, transitions=None, holder="")
            self._held = None
        self._http.close()

    def _put(
        self, method: str, path: str, known: Mapping[str, Any], *, transitions: int | None, holder: str | None = None
    ) -> bool:
        """Write it, if nobody wrote it since it was `known`: then its `resourceVersion` is another."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        before = known.get("spec") or {}
        changed = transitions is not None and transitions != before.get("leaseTransitions")
        spec = {
            "holderIdentity": self._holder if holder is None else holder,
            "leaseDurationSeconds": max(1, round(self._lease_s)),
            "acquireTime": now if changed else before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) if transitions is None else transitions,
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": known["metadata"], "spec": spec}
        written = self._ask(method, path, body)
        self._held = written if written is not None else self._held
        return written is not None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the Lease; None where it is not there, or has changed meanwhile."""
        try:
            known = self._request(method, path, body)
        except StorageUnavailable as error:
            self._trouble = error
            raise
        self._trouble = None
        return known

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any] | None:
        try:
            headers = {"Authorization": f"Bearer {self._token()}"}
            answer = self._http.request(method, self._leases + path, json=body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise StorageUnavailable(f"the API server of Kubernetes does not answer: {error}") from None
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return None
        if answer.is_error:
            raise StorageUnavailable(
                f"the API server refuses {method} of Lease {self._name} ({answer.status_code}): {answer.text[:200]}. "
                f"The account of this pod must be allowed to get, create and update leases"
            )
        return dict(answer.json())
