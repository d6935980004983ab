"""The three probes of our services, and the constructors they are made with."""

from __future__ import annotations

from pulumi_kubernetes.core.v1 import ExecActionArgs, HTTPGetActionArgs, ProbeArgs, TCPSocketActionArgs


def http(path: str, port: str, *, every_s: int = 10, failures: int = 3) -> ProbeArgs:
    return ProbeArgs(
        http_get=HTTPGetActionArgs(path=path, port=port),
        period_seconds=every_s,
        failure_threshold=failures,
        timeout_seconds=5,
    )


def tcp(port: str, *, every_s: int = 10, failures: int = 3) -> ProbeArgs:
    return ProbeArgs(
        tcp_socket=TCPSocketActionArgs(port=port),
        period_seconds=every_s,
        failure_threshold=failures,
        timeout_seconds=min(every_s, 5),
    )


def command(*words: str, every_s: int, timeout_s: int, failures: int = 3) -> ProbeArgs:
    return ProbeArgs(
        exec_=ExecActionArgs(command=list(words)),
        period_seconds=every_s,
        failure_threshold=failures,
        timeout_seconds=timeout_s,
    )


def starting() -> ProbeArgs:
    """Five minutes for the interpreter and its imports; the HTTP server answers before the model is loaded."""
    return http("/healthz", "http", every_s=5, failures=60)


def turning() -> ProbeArgs:
    """Restarted after three minutes without an answer: a GPU that computes may keep the loop waiting.

    A service that answers and gets nowhere with its work ends itself: ratchet/runtime/watchdog.py.
    """
    return http("/healthz", "http", every_s=30, failures=6)
