"""An engine whose answers are written in a file: for examples and for trying programs where no model that could do the
task is at hand. It learns nothing, and what comes of it says nothing about a model.

    [[turns]]
    heard = "mend"            # the first turn whose text stands in what was said since the last answer
    says = ["yes", "no"]      # one of them, by chance

Its prompts and answers are token ids of a tokenizer, as any model's, so what it says is recorded token for token.
"""

from __future__ import annotations

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
from services.agent.engines.echo import EchoEngine
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.settings import AgentSettings

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
