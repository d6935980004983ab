"""An OpenAI-compatible server that echoes its prompt and counts words as tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = body["messages"][-1]["content"]
        usage = {"prompt_tokens": len(text.split()), "completion_tokens": 1 + len(text) % 7}
        self._answer({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage})

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def chat_model() -> Iterator[dict[str, str]]:
    """Yield the settings of agents that ask it."""
    server = Server(("127.0.0.1", 0), Model)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {
            "RATCHET_AGENT_ENGINE": "openai",
            "RATCHET_BIG_MODEL": f"http://127.0.0.1:{server.server_address[1]}/v1",
            "RATCHET_BIG_MODEL_NAME": "counted",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
