"""An engine whose answers are written in a file: for examples and for trying programs where no model that could do the
task is at hand. It learns nothing, and what comes of it says nothing about a model.

    [[turns]]
    heard = "mend"            # the first turn whose text stands in what was said since the last answer
    says = ["yes", "no"]      # one of them, by chance

Its prompts and answers are token ids of a tokenizer, as any model's, so what it says is recorded token for token.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import tomllib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from ratchet.conversation.stops import cut_at_stop, watch_for
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, SettingsError
from schemas.messages.base import BaseModelIdentity, explain
from schemas.messages.response import Sample
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.settings import AgentSettings


class EchoEngine:
    """Every sample is the text of the last chat message; with an adapter, `<adapter>: ` stands before it."""

    identity = "echo"
    base: BaseModelIdentity | None = None
    context = 8192

    def __init__(self, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._adapters: set[str] = set()

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        return cls(settings.agent_echo_latency_s)

    async def start(self) -> None:
        pass

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        return [self._answer(request) for request in requests]

    def _answer(self, request: GenerationRequest) -> Generation | EngineError:
        if request.adapter is not None and request.adapter not in self._adapters:
            return AdapterError(f"the echo engine has no adapter {request.adapter!r}: load it first")
        if request.format is not None:
            return PromptRefused(f"the engine {self.identity} can't hold its answers to a form: ask it without one")
        text = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
        if request.adapter is not None:
            text = f"{request.adapter}: {text}"
        told, word = cut_at_stop(text, request.sampling.stop)
        return Generation((Sample(text=told, finish_reason="stop", stopped_at=word),) * request.sampling.n)

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """The last turn, one token at a time, as sure as can be: what stands behind the last token that is as the first
        one, for templates that open turns with a token and ask for an answer with another. It goes on with a beginning
        of its answer that stands there already. Its tokens have no text, so strings to end at are for who asks.
        """
        if request.sampling.grammar is not None:
            raise PromptRefused(f"the engine {self.identity} can't hold its answers to a form: ask it without one")
        if request.adapter is not None and request.adapter not in self._adapters:
            raise AdapterError(f"the echo engine has no adapter {request.adapter!r}: load it first")
        ids = request.prompt_ids
        turn = ids[len(ids) - ids[::-1].index(ids[0]) :]
        begun = next(n for n in range((len(turn) - 1) // 2, -1, -1) if turn[len(turn) - n :] == turn[:n])
        said = turn[begun : len(turn) - begun - 1][: request.sampling.max_tokens]
        for token in said:
            await asyncio.sleep(self._latency_s / len(said))
            yield TokenPiece(0, (token,), (0.0,))
        yield TokenPiece(0, (), (), "length" if len(said) == request.sampling.max_tokens else "stop")

    async def load_adapter(self, name: str, path: Path) -> None:
        if not path.is_dir():
            raise AdapterError(f"no adapter folder {path} to load {name!r} from: restore it, or roll the agent back")
        self._adapters.add(name)

    async def unload_adapter(self, name: str) -> None:
        self._adapters.discard(name)

    def adapters(self) -> frozenset[str]:
        return frozenset(self._adapters)

    def trouble(self) -> str | None:
        return None

    async def stop(self) -> None:
        pass


CONTEXT = 65_536
UNHEARD = "I have nothing to say to that."


class Turn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    heard: str = Field(description="Stands in what was said since the model's last answer.")
    says: tuple[str, ...] = Field(min_length=1, description="One of them, each as likely.")


class Script(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    opens: str = Field("<|assistant|>", description="The token of the chat template that an answer stands behind.")
    turns: tuple[Turn, ...] = Field(min_length=1)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Raises SettingsError."""
        try:
            return cls.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"RATCHET_AGENT_SCRIPT: {file} can't be read: {error}") from None
        except ValidationError as error:
            raise SettingsError(f"{file}: {explain('script', error)}") from None

    def says(self, heard: str) -> tuple[str, ...]:
        return next((turn.says for turn in self.turns if turn.heard in heard), (UNHEARD,))


class ScriptedEngine(EchoEngine):
    """`folder` holds the tokenizer, as a model's does. Adapters change nothing but a name that stands before a text."""

    identity = "scripted"
    base = BaseModelIdentity(name="scripted")
    """No model's, so no adapter of a model is one for it."""
    context = CONTEXT

    def __init__(self, script: Script, folder: Path, chance: random.Random) -> None:
        """Raises EngineError where the folder has no tokenizer that fits the script."""
        super().__init__()
        self._script = script
        self._chance = chance
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            end = json.loads((folder / "tokenizer_config.json").read_bytes())["eos_token"]
        except Exception as error:  # the library raises nothing more precise
            raise EngineError(f"{folder} has no tokenizer for a script: {error}") from error
        ends, opens = (self._tokenizer.token_to_id(token) for token in (end, script.opens))
        if ends is None or opens is None:
            raise EngineError(f"the tokenizer in {folder} has no token {end} or {script.opens}")
        self._ends, self._opens = ends, opens

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        if settings.agent_script is None:
            raise SettingsError("RATCHET_AGENT_SCRIPT is not set: the engine scripted says what is written there")
        script = Script.read(settings.agent_script)
        return cls(script, Path(settings.agent_model), random.Random(settings.agent_seed))

    def _answer(self, request: GenerationRequest) -> Generation | EngineError:
        echoed = super()._answer(request)
        if isinstance(echoed, EngineError):
            return echoed
        name = f"{request.adapter}: " if request.adapter is not None else ""
        says = self._script.says(request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content)
        drawn = says * request.sampling.n if request.sampling.temperature == 0 else ()
        texts = [name + (drawn[0] if drawn else self._chance.choice(says)) for _ in range(request.sampling.n)]
        told = (cut_at_stop(text, request.sampling.stop) for text in texts)
        return Generation(tuple(Sample(text=text, finish_reason="stop", stopped_at=word) for text, word in told))

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """Goes on with a beginning of an answer that stands there already; what begins none, such as the template's own
        end of the line, is passed over. The first token has all of the chance."""
        if request.sampling.grammar is not None:
            raise PromptRefused(f"the engine {self.identity} can't hold its answers to a form: ask it without one")
        if request.adapter is not None and request.adapter not in self.adapters():
            raise AdapterError(f"the scripted engine has no adapter {request.adapter!r}: load it first")
        heard, begun = self._split(request.prompt_ids)
        written = [[*self._tokenizer.encode(text, add_special_tokens=False).ids, self._ends] for text in heard]
        fitting = [one for one in written if one[: len(begun)] == begun]
        if not fitting:
            fitting, begun = written, []
        chosen = self._chance.choice(fitting) if request.sampling.temperature else fitting[0]
        said = chosen[len(begun) :][: request.sampling.max_tokens]
        stops = watch_for(request.sampling.stop, self._text_of)
        count = stops.count(said) if stops else None
        said = said[:count]
        logprob = -math.log(len(fitting)) if request.sampling.temperature else 0.0
        for place, token in enumerate(said):
            yield TokenPiece(0, (token,), (0.0 if place else logprob,))
        ended = count is not None or (bool(said) and said[-1] == self._ends)
        yield TokenPiece(0, (), (), "stop" if ended else "length")

    def _text_of(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _split(self, prompt_ids: Sequence[int]) -> tuple[tuple[str, ...], list[int]]:
        """Return the answers to what was said since its last answer, and the beginning of this one."""
        places = [place for place, token in enumerate(prompt_ids) if token == self._opens]
        last = places[-1] if places else len(prompt_ids)
        since = places[-2] + 1 if len(places) > 1 else 0
        heard = self._text_of(prompt_ids[since:last])
        return self._script.says(heard), list(prompt_ids[last + 1 :])
