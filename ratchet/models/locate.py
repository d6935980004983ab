"""Finds the folder of a model by its name, or says early that there is none. Loads no model and no transformers."""

from __future__ import annotations

from pathlib import Path

from ratchet.models.known import KNOWN, known_folder
from ratchet.service.errors import EngineError, one_line

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
