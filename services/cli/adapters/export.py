"""`ratchet adapters export`: a version for other programs, as PEFT's files, merged weights or GGUF; or on a hub."""

from __future__ import annotations

import json as json_
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ratchet.adapters.check import check_adapter
from ratchet.adapters.evaluations import evaluations_of
from ratchet.adapters.export import holds, new_folder, write_model_card, write_peft_folder, write_record
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.operator_service import OperatorService
from ratchet.models.fetch import CONVERSION_ENVIRONMENT
from ratchet.service.errors import NotFound, one_line
from ratchet.service.settings import FleetSettings
from services.cli.adapters.here import Agent, Version, operator_service_here
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import AsJson, CommandError, UsageError, out, print_json, say

CONVERTER = "convert_hf_to_gguf.py"
"""The script of llama.cpp that converts; its file gets the name `GGUF_FILE` in the folder."""
GGUF_FILE = "model.gguf"


def export(
    version: Version,
    folder: Annotated[Path, typer.Argument(help="To be made: not there, or empty; with --push as it was made.")],
    agent: Agent = None,
    merged: Annotated[bool, typer.Option("--merged", help="One model: the adapter's weights in the base's.")] = False,
    model: Annotated[
        str | None,
        typer.Option(help="With --merged, the base model: a folder, known or hub name; the fleet's if not named."),
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        typer.Option(help="With --merged: the weights' number format; auto is float32 on a CPU."),
    ] = "auto",
    gguf: Annotated[
        str | None,
        typer.Option(help=f"With --merged, a GGUF file too: the path of llama.cpp's {CONVERTER}.", metavar="CONVERTER"),
    ] = None,
    push: Annotated[
        str | None, typer.Option(help="Then upload it to this repository of the hub, private if it is new.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Export a version: PEFT's files with a model card, or the whole model with the adapter merged into it.

    What is exported was checked as a version is before it serves: sums, shapes, limits. --merged holds the merged
    model's log-probabilities against the adapter's before it keeps it. --push sends the folder by the hub's own
    client, which takes its token from HF_TOKEN or `hf auth login`, and its address from HF_ENDPOINT. Where that
    failed, the same command sends what was made, if its sums are as they were; only its README.md may differ.
    """
    if (gguf or model or dtype != "auto") and not merged:
        raise UsageError("--gguf, --model and --dtype go with --merged: PEFT's files are copied as they are")
    service = operator_service_here(agent)
    if (source := service.folder(version)) is None:
        raise NotFound(f"{version} is the base model, and has no adapter: export a version that was trained")
    converter = _converter(gguf) if gguf else None
    made: dict[str, Any] = {"version": version, "agent": service.agent_id, "folder": str(folder)}
    base = _base(model, source) if merged else None
    made_from = {
        "agent": service.agent_id,
        "version": version,
        "adapter_sha256": service.agent.versions[version].sha256,
        "merged": dtype if merged else None,
        "model": str(base) if base else None,
        "gguf": gguf is not None,
    }
    if push and holds(folder, made_from):
        say(f"{folder} was made before, and is pushed as it is")
    else:
        with new_folder(folder) as being_made:
            made |= _fill(being_made, source, service, base, dtype)
            if converter:
                _convert(converter, being_made)
            write_record(being_made, made_from)
    if gguf:
        made["gguf"] = str(folder / GGUF_FILE)
    if push:
        made["url"] = _push(folder, push, f"{service.agent_id} {version}")
    if json:
        print_json(made)
        return
    out.print(
        f"{folder} holds {service.agent_id} {version}: {', '.join(sorted(path.name for path in folder.iterdir()))}",
        markup=False,
    )
    if push:
        out.print(f"and so does {made['url']}", markup=False)


def _fill(target: Path, source: Path, service: OperatorService, base: str | None, dtype: str) -> dict[str, Any]:
    """`base`: to be merged with; None for PEFT's files."""
    settings = FleetSettings.read()
    card = check_adapter(source, AdapterLimits(settings.adapter_max_rank))
    evaluations = evaluations_of(service.store.folder, service.agent_id, source.name)
    if base is None:
        write_peft_folder(source, target, card, evaluations)
        return {}
    found = _merge(base, source, target, dtype, settings.adapter_max_rank)
    write_model_card(target, source, card, evaluations, merged=True)
    return found


def _base(model: str | None, source: Path) -> str:
    record = FleetAccess.here().record
    known = record.options.model if record and record.options.engine == "transformers" else None
    if (name := model or os.environ.get("RATCHET_TRAINER_MODEL") or known) is None:
        raise UsageError(f"name the base model of {source.name} with --model: a folder, a known model or a hub name")
    return name


def _merge(base: str, adapter: Path, target: Path, dtype: str, max_rank: int) -> dict[str, Any]:
    """Merge in a process of its own, the only one that imports torch. Raises CommandError with its sentence."""
    say(f"merging {adapter.name} into {base}")
    command = [sys.executable, "-m", "ratchet.models.merge", base, "--adapter", str(adapter), "--out", str(target)]
    ended = subprocess.run(
        [*command, "--dtype", dtype, "--max-rank", str(max_rank)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | CONVERSION_ENVIRONMENT,
    )
    if ended.returncode != 0:
        raise CommandError(f"{adapter.name} can't be merged: {(ended.stderr.strip().splitlines() or ['killed'])[-1]}")
    found: dict[str, Any] = json_.loads(ended.stdout.splitlines()[-1])
    return found


def _converter(name: str) -> Path:
    if (found := shutil.which(name)) is None and not Path(name).is_file():
        raise UsageError(f"{name} is not there: give --gguf the path of llama.cpp's {CONVERTER}")
    return Path(found or name)


def _convert(converter: Path, folder: Path) -> None:
    """Raises CommandError with the converter's last line."""
    say(f"converting to GGUF with {converter.name}")
    ended = subprocess.run(
        [sys.executable, str(converter), str(folder), "--outfile", str(folder / GGUF_FILE)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0 or not (folder / GGUF_FILE).is_file():
        said = (ended.stderr.strip() or ended.stdout.strip() or f"it ended with {ended.returncode}").splitlines()[-1]
        raise CommandError(f"{converter} made no {GGUF_FILE}: {said}")


def _push(folder: Path, repository: str, what: str) -> str:
    """Return the address where it is then. Raises CommandError with the client's sentence."""
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise CommandError("--push needs the hub's client: pip install huggingface_hub") from None
    try:
        api = HfApi()
        url = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f"{what}, exported by Ratchet")
    except Exception as error:  # whatever the client or its HTTP library raises
        raise CommandError(
            f"{folder} is made, but the hub did not take it: {one_line(str(error))}; the same command pushes it again"
        ) from error
    return str(url)
