"""The engine of all contestants: `python -m bench.recorder.engine FILE`, a process that says what the file holds.

It speaks as vLLM's server does: `/v1/completions` streamed, with token ids in and out; `/v1/chat/completions` in text,
streamed or whole. It writes the port it listens at. Each answer keeps to its own clock, from the moment it was asked:
a first token after `first_s`, each further one `token_s` later, so what it can do at once is set and no matter of this
machine. With both at zero it writes a token whenever it has a turn. It takes no account of prompts, and tokenizes none.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvloop
from pydantic_core import from_json

from bench.recorder.script import CONTEXT, MODEL, Answer

LENGTH = re.compile(rb"\r\ncontent-length:[ ]*(\d+)", re.IGNORECASE)
STREAMED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
HEAD = {"id": "scripted-1", "created": 1_700_000_000, "model": MODEL}
LOGPROB = -0.5
CHARS_A_TOKEN = 5
"""Of a request for a chat, to give it as many prompt ids as a server would."""


@dataclass
class Pace:
    """Seconds before the first token of an answer and between two of them."""

    first_s: float = 0.0
    token_s: float = 0.0


class Written:
    """An answer as it goes over the wire: `steps` of each dialect are what a token adds."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.texts = _streamed([_text_event(*one) for one in self._tokens()])
        chat = [_chat_event({"content": text}) for text in answer.texts]
        chat[0] = _chat_event({"role": "assistant", "content": ""}) + chat[0]
        self.chat = _streamed([*chat, _chat_event({}, "stop")])

    def _tokens(self) -> list[tuple[int, str, str | None]]:
        texts = (*self._answer.texts, "")
        ends = (*(None for _ in self._answer.texts), "stop")
        return list(zip(self._answer.ids, texts, ends, strict=True))

    def whole_chat(self, body: dict[str, Any], size: int) -> dict[str, Any]:
        ids, prompt = self._answer.ids, size // CHARS_A_TOKEN
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": self._answer.text},
            "finish_reason": "stop",
            "logprobs": None,
        }
        if body.get("logprobs"):
            texts = (*self._answer.texts, "<|im_end|>")
            logprobs = [{"token": text, "logprob": LOGPROB, "bytes": None, "top_logprobs": []} for text in texts]
            choice["logprobs"] = {"content": logprobs}
        usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
        whole = HEAD | {"object": "chat.completion", "choices": [choice], "usage": usage}
        if body.get("return_token_ids"):
            choice["token_ids"] = ids
            whole["prompt_token_ids"] = list(range(prompt))
        return whole


def _streamed(events: Sequence[bytes]) -> list[bytes]:
    steps = [_chunk(event) for event in events]
    steps[0] = STREAMED + steps[0]
    steps[-1] += _chunk(DONE) + b"0\r\n\r\n"
    return steps


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(told: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(told, separators=(",", ":")).encode() + b"\n\n"


def _chat_event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event(HEAD | {"object": "chat.completion.chunk", "choices": [choice]})


def _text_event(token: int, text: str, finish: str | None) -> bytes:
    logprobs = {"text_offset": [0], "token_logprobs": [LOGPROB], "tokens": [text], "top_logprobs": [{}]}
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish, "token_ids": [token]}
    return _event(HEAD | {"object": "text_completion", "choices": [choice], "usage": None})


def _json(told: Any) -> bytes:
    body = json.dumps(told).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class Engine:
    """`sent` counts the answers that were given whole, by their numbers."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.pace = Pace()
        self.sent: Counter[int] = Counter()
        self._written = [Written(answer) for answer in answers]
        self._asked = 0

    def connection(self) -> asyncio.Protocol:
        return _Connection(self)

    def reply(self, path: str, body: dict[str, Any], size: int) -> tuple[list[bytes], int | None]:
        """What is written step by step, and the number of the answer that it is, if it is one."""
        if path == "/v1/models":
            return [_json({"object": "list", "data": [{"id": MODEL, "max_model_len": CONTEXT}]})], None
        if path == "/pace":
            self.pace = Pace(**body)
        if path == "/sent":
            told, self.sent = dict(self.sent), Counter()
            return [_json(told)], None
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return [_json({})], None
        number = self._asked % len(self._written)
        self._asked += 1
        written = self._written[number]
        if path == "/v1/completions":
            return written.texts, number
        if body.get("stream"):
            return written.chat, number
        return [b""] * (len(written.chat) - 1) + [_json(written.whole_chat(body, size))], number


class _Connection(asyncio.Protocol):
    """HTTP/1.1 as clients with a body of a known length speak it, one request after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._had = bytearray()
        self._next: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._next:
            self._next.cancel()

    def data_received(self, data: bytes) -> None:
        self._had += data
        if (end := self._had.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._had[:end])
        length = int(found[1]) if (found := LENGTH.search(head)) else 0
        if len(self._had) < end + 4 + length:
            return
        raw = bytes(self._had[end + 4 : end + 4 + length])
        del self._had[: end + 4 + length]
        path = head.split(b" ", 2)[1].decode()
        steps, number = self._engine.reply(path, from_json(raw) if raw else {}, len(raw))
        if number is None:
            self._transport.write(steps[0])
            return
        loop, pace = asyncio.get_running_loop(), self._engine.pace
        self._steps, self._number, self._at = steps, number, 0
        self._pace, self._begun = pace, loop.time() + pace.first_s
        self._later(loop)

    def _later(self, loop: asyncio.AbstractEventLoop) -> None:
        when = self._begun + self._at * self._pace.token_s
        self._next = loop.call_at(when, self._step) if when > loop.time() else loop.call_soon(self._step)

    def _step(self) -> None:
        if step := self._steps[self._at]:
            self._transport.write(step)
        self._at += 1
        if self._at < len(self._steps):
            self._later(asyncio.get_running_loop())
        else:
            self._next = None
            self._engine.sent[self._number] += 1


async def _serve(file: Path) -> None:
    said = json.loads(file.read_text())
    engine = Engine([Answer(tuple(one["ids"]), tuple(one["texts"])) for one in said])
    server = await asyncio.get_running_loop().create_server(engine.connection, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
