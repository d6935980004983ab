"""A stand-in for the program `vllm`: `serve MODEL --port … --served-model-name …`, with its API and its refusals.

It takes the arguments that vLLM takes and answers every prompt with `WORD`, tokenised by the model's own tokenizer. It
leaves out batching, streams and adapters' effect: what is tested is who starts it, with what, and who watches it.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

MODULE = "tests.acceptance.vllm_stand_in"
WORD = "from the model server"


def install(folder: Path) -> Path:
    """Put a program `vllm` into the folder that runs this file; returns the folder, for the PATH."""
    program = folder / "vllm"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={Path(__file__).parents[2]} exec {sys.executable} -m {MODULE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--enable-lora", action="store_true", required=True)
    for name in ("host", "port", "served-model-name", "gpu-memory-utilization", "max-loras", "max-cpu-loras"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("max-lora-rank", "logprobs-mode", "generation-config"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max-model-len", type=int, default=512)
    return parser.parse_args()


class Server(BaseHTTPRequestHandler):
    given: argparse.Namespace
    ids: list[int]
    adapters: dict[str, str]

    def do_GET(self) -> None:
        if self.path == "/health":
            return self._answer(200, None)
        if self.path == "/v1/models":
            base = {"id": self.given.served_model_name, "max_model_len": self.given.max_model_len}
            loaded = [{"id": name, "parent": base["id"]} for name in self.adapters]
            return self._answer(200, {"data": [base, *loaded]})
        return self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/load_lora_adapter" and os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "True":
            self.adapters[body["lora_name"]] = body["lora_path"]
            return self._answer(200, "loaded")
        if self.path != "/v1/completions":
            return self._answer(404, {"detail": "Not Found"})
        choice = {"text": WORD, "finish_reason": "stop", "token_ids": self.ids}
        choices = [
            {**choice, "index": index, "logprobs": {"token_logprobs": [-0.1] * len(self.ids)}}
            for index in range(body["n"])
        ]
        return self._answer(200, {"choices": choices})

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Server.given, Server.adapters = _arguments(), {}
    tokenizer = Tokenizer.from_file(str(Path(Server.given.model) / "tokenizer.json"))
    Server.ids = tokenizer.encode(WORD, add_special_tokens=False).ids
    ThreadingHTTPServer((Server.given.host, int(Server.given.port)), Server).serve_forever()
