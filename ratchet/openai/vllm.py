"""What vLLM answers besides OpenAI's routes: its health, a prompt's token ids, adapters loaded at run time."""

from __future__ import annotations

from typing import Any, Literal

from ratchet.openai.client import OpenAiClient
from ratchet.openai.completions import Tokens
from ratchet.openai.errors import ModelServerError
from ratchet.service.errors import AdapterError
from schemas.messages.task import ChatMessage


class VllmClient(OpenAiClient):
    """`http` has the server's root for its base URL, `api_path` is /v1."""

    async def check_health(self) -> None:
        await self._control("GET", "/health")

    async def tokenize(self, model: str, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """Through the server's chat template."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "add_generation_prompt": True,
        }
        return self._parsed(Tokens, "list of tokens", await self._control("POST", "/tokenize", body)).tokens

    async def load_adapter(self, name: str, path: str) -> None:
        await self._change_adapters("load", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        await self._change_adapters("unload", {"lora_name": name})

    async def _change_adapters(self, change: Literal["load", "unload"], body: dict[str, Any]) -> None:
        """Raises AdapterError. A server that does not allow changes answers with 404."""
        try:
            await self._control("POST", f"{self._api}/{change}_lora_adapter", body)
        except ModelServerError as error:
            await self.check_health()  # an adapter that does not fit is answered with 500: away or not is told here
            raise AdapterError(
                f"the server could not {change} {body['lora_name']!r}: {error}. It needs --enable-lora, a sufficient "
                "--max-lora-rank, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and the adapters under the same path"
            ) from error
