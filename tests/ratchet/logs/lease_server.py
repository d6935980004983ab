"""An API server of Kubernetes that knows Leases alone: it refuses a write to another version than the one it has."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PATH = "/apis/coordination.k8s.io/v1/namespaces/fleet/leases"


class LeaseServer:
    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.tokens: list[str] = []
        self.before_write: Callable[[], None] = lambda: None
        """Called when a write has come, before its version is compared."""
        self.refuses: int | None = None
        self.url = ""

    def write(self, name: str, **spec: Any) -> None:
        """Changes a lease, as somebody else does it."""
        self.version += 1
        lease = self.leases.setdefault(name, {"metadata": {"name": name}, "spec": {}})
        lease["metadata"] = {"name": name, "resourceVersion": str(self.version)}
        lease["spec"] = lease["spec"] | spec

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        assert path.startswith(PATH), path
        if self.refuses is not None:
            return self.refuses, {"message": "leases is forbidden"}
        name = path.removeprefix(PATH).strip("/")
        if method == "GET":
            return (200, self.leases[name]) if name in self.leases else (404, {})
        assert body is not None and (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease")
        self.before_write()
        name = body["metadata"]["name"]
        if method == "POST" and name in self.leases:
            return 409, {}
        if method == "PUT":
            sent, known = body["metadata"].get("resourceVersion"), self.leases.get(name)
            assert sent is not None, "an update without a version would overwrite whatever is there"
            if known is None or known["metadata"]["resourceVersion"] != sent:
                return 409, {}
        self.write(name, **body["spec"])
        return 200, self.leases[name]


def certificate(folder: Path) -> ssl.SSLContext:
    """Write `ca.crt` and the key of a server at 127.0.0.1, and return the server's side."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "ca.crt").write_bytes(signed.public_bytes(pem))
    (folder / "server.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "server.key")
    return context


@contextmanager
def lease_server(tls: ssl.SSLContext | None = None) -> Iterator[LeaseServer]:
    known = LeaseServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            known.tokens.append(self.headers["authorization"])
            status, said = known.answer(self.command, self.path, body)
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815  # names of http.server

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    known.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
