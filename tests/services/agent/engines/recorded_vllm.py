"""A vLLM server as far as the agent uses it: forwards to a real one and records, or replays what was recorded.

A replay invents nothing: a request that is not in the recording is answered with 599, which fails the test that sent
it. Recordings are found by the request and by what else shapes its answer: the adapters loaded at the time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

RECORDING = Path(__file__).parent / "recordings" / "vllm-0.32.0.json"
NOT_RECORDED = 599


class RecordedVllm:
    """`real`: the server to forward to and record from; None: replay. `away`: answers nothing but 503."""

    def __init__(self, real: str | None = None) -> None:
        self._real = httpx.AsyncClient(base_url=real, timeout=300) if real else None
        self._answers: dict[str, dict[str, Any]] = json.loads(RECORDING.read_text()) if RECORDING.exists() else {}
        self.loaded: set[str] = set()
        self.away = False
        self.requests: list[tuple[str, dict[str, Any] | None]] = []
        self.headers: list[dict[str, str]] = []
        self.application = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.application), base_url="http://vllm")

    async def _answer(self, request: Request) -> Response:
        body = json.loads(await request.body() or b"null")
        path = request.url.path
        self.requests.append((path, body))
        self.headers.append(dict(request.headers))
        if self.away:
            return Response("no server behind this address", status_code=503)
        key = self._key(request.method, path, body)
        if self._real:
            self._answers[key] = await self._forwarded(request.method, path, body)
        answer = self._answers.get(key, {"status": NOT_RECORDED, "body": f"not recorded: {key}"})
        self._note_adapters(path, body, answer["status"])
        return Response(json.dumps(answer["body"]), status_code=answer["status"], media_type="application/json")

    def _key(self, method: str, path: str, body: dict[str, Any] | None) -> str:
        shown = dict(body or {})
        if "lora_path" in shown:
            shown["lora_path"] = Path(shown["lora_path"]).name
        if path == "/health":
            state: Any = None
        elif "completions" in path:
            state = "known model" if shown.get("model") in {*self.loaded, "base"} else "unknown model"
        else:
            state = sorted(self.loaded)
        return json.dumps([method, path, shown, state], sort_keys=True)

    async def _forwarded(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        assert self._real is not None
        answer = await self._real.request(method, path, json=body)
        text = answer.text.replace(body["lora_path"], "/adapters") if body and "lora_path" in body else answer.text
        try:
            return {"status": answer.status_code, "body": _without_clock(json.loads(text))}
        except ValueError:
            return {"status": answer.status_code, "body": text}

    def _note_adapters(self, path: str, body: dict[str, Any] | None, status: int) -> None:
        if status == httpx.codes.OK and body:
            if path == "/v1/load_lora_adapter":
                self.loaded.add(body["lora_name"])
            if path == "/v1/unload_lora_adapter":
                self.loaded.discard(body["lora_name"])

    async def forget_adapters(self) -> None:
        """Forget all adapters, as after a restart."""
        for name in sorted(self.loaded):
            if self._real:
                await self._real.post("/v1/unload_lora_adapter", json={"lora_name": name})
        self.loaded.clear()

    async def stop(self) -> None:
        """Write the recording, sorted."""
        await self.forget_adapters()
        if self._real:
            await self._real.aclose()
            RECORDING.parent.mkdir(exist_ok=True)
            lines = [f"{json.dumps(key)}: {json.dumps(self._answers[key])}" for key in sorted(self._answers)]
            RECORDING.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _without_clock(body: Any) -> Any:
    """Return a body without ids, times and the folder of the server, which differ from run to run."""
    if isinstance(body, list):
        return [_without_clock(item) for item in body]
    if isinstance(body, dict):
        dropped = ("created", "id", "permission", "root", "request_id")
        kept = {key: _without_clock(value) for key, value in body.items() if key not in dropped}
        return kept | ({"id": body["id"]} if body.get("object") == "model" else {})
    return body
