"""infra/fluent-bit/fluent-bit.yaml tried on a real Fluent Bit: which lines reach Loki, and under which labels.

    python -m tests.infra.log_shipping --folder /tmp/shipping -- fluent-bit

Whatever stands after `--` is started with the configuration file as its argument. The containers' logs lie below that
folder, as Docker writes them. Loki's place is taken by a server that refuses the first delivery: what is refused must
come again. Leaves out a Loki itself, and Docker's rotation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.waiting import wait_until

CONFIGURATION = Path(__file__).parents[2] / "infra" / "fluent-bit" / "fluent-bit.yaml"
ARRIVES_WITHIN_S = 60.0
SETTLING_S = 3.0
"""The wait for lines that must not come, after those that must."""

SERVICE_LINE = {
    "time": "2026-01-02T03:04:05.678+00:00", "level": "WARNING", "service": "agent", "action": "engine.restarted",
    "message": "the engine's process is gone", "task_id": "t-1",
}  # fmt: skip
BROKER_LINE = "2026-01-02 03:04:06.000000+00:00 [warning] <0.1.0> a quorum queue has no leader"
WRITTEN = {
    "ratchet/ratchet-agent-1": json.dumps(SERVICE_LINE),
    "ratchet/ratchet-rabbitmq-1": BROKER_LINE,
    "ratchet-two/ratchet-two-agent-1": json.dumps(SERVICE_LINE | {"message": "of a second fleet"}),
    "shop/ratchet/": "of a stranger",
    None: "of a container without a tag",
}
"""Lines that containers wrote to stdout, by Docker's tag."""

WANTED_LABELS = [
    {"fleet": "ratchet", "container": "ratchet/ratchet-agent-1", "service": "agent", "level": "WARNING"},
    {"fleet": "ratchet", "container": "ratchet/ratchet-rabbitmq-1"},
]
WANTED_LINES = [
    {key: value for key, value in SERVICE_LINE.items() if key not in WANTED_LABELS[0]} | {"stream": "stdout"},
    {"log": f"{BROKER_LINE}\n", "stream": "stdout"},
]
"""Wanted lines, without the fields that became labels."""
WANTED_TIMES = ["1767323045678000000", "1767323046000000000"]
"""Times of these lines, in nanoseconds since 1970: the service's own, and Docker's for the broker's line."""


@dataclass
class LokiStandIn:
    refused: int = 0
    streams: list[dict[str, Any]] = field(default_factory=list)

    def take(self, body: bytes) -> int:
        """The HTTP status to answer a push with."""
        if not self.refused:
            self.refused += 1
            return 503
        self.streams += json.loads(body)["streams"]
        return 204

    def server(self) -> ThreadingHTTPServer:
        loki = self

        class Push(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(loki.take(self.rfile.read(int(self.headers["Content-Length"]))))
                self.end_headers()

        return ThreadingHTTPServer(("127.0.0.1", 0), Push)


def write_containers(folder: Path) -> None:
    for number, (tag, text) in enumerate(WRITTEN.items()):
        line: dict[str, Any] = {"log": f"{text}\n", "stream": "stdout", "time": "2026-01-02T03:04:06.000000000Z"}
        if tag is not None:
            line["attrs"] = {"tag": tag}
        container = folder / f"{number:064x}"
        container.mkdir(parents=True)
        (container / f"{container.name}-json.log").write_text(json.dumps(line) + "\n")


def ship(command: list[str], folder: Path) -> LokiStandIn:
    """Start it, wait for the lines that must come, and a little longer for those that must not."""
    loki = LokiStandIn()
    write_containers(folder / "containers")
    with loki.server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "FLEET": "ratchet", "CONTAINER_LOGS": str(folder / "containers"), "SHIPPER_STATE": str(folder / "state"),
            "LOKI_HOST": "127.0.0.1", "LOKI_PORT": str(server.server_port),
        }  # fmt: skip
        shipper = subprocess.Popen([*command, "-c", str(CONFIGURATION)], env=os.environ | settings)
        try:
            with suppress(AssertionError):  # what is missing is the tests' to say
                wait_until(
                    lambda: len(loki.streams) >= len(WANTED_LABELS) or shipper.poll() is not None, "", ARRIVES_WITHIN_S
                )
            time.sleep(SETTLING_S)  # real time: nothing more should come
        finally:
            shipper.terminate()
            shipper.wait(30)
            server.shutdown()
    return loki


def complaints(loki: LokiStandIn) -> list[str]:
    streams = sorted(loki.streams, key=lambda stream: str(stream["stream"].get("container")))
    values = [value for stream in streams for value in stream["values"]]
    labels, times = [stream["stream"] for stream in streams], [when for when, _ in values]
    found = [f"labels {labels}, not {WANTED_LABELS}"] if labels != WANTED_LABELS else []
    found += [f"times {times}, not {WANTED_TIMES}"] if times != WANTED_TIMES else []
    if not loki.refused:
        found.append("nothing was refused, so nothing was tried again")
    lines = [json.loads(line) for _, line in values]
    return found + [
        f"line {line}, not {wanted}" for line, wanted in zip(lines, WANTED_LINES, strict=False) if line != wanted
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="does not exist yet")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    found = complaints(ship(arguments.command, arguments.folder))
    sentence = "\n".join(found) or f"{len(WANTED_LABELS)} lines of the fleet came, after a refusal, and no other"
    sys.stdout.write(f"{sentence}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
