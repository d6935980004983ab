"""A version as a folder that any program with PEFT can load, with a model card in the hub's form. Pure but for files.

Exactly what was checked and signed is copied; the card is written from the adapter's own card and its evaluations.
`export.json` says what the folder was made from, with a sum of each file, so that a push that failed can go on from it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.adapters.folder import open_file
from ratchet.adapters.manifest import read_manifest
from ratchet.service.errors import AdapterError
from schemas.records.adapter_card import AdapterCard
from schemas.records.evaluation import Evaluation, FamilyResult, Interval

MODEL_CARD = "README.md"
EXPORT_RECORD = "export.json"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it gets the target's name only once it is whole. Raises AdapterError, OSError."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise AdapterError(f"{target} is there already: name a folder that is not, or that is empty")
    target.parent.mkdir(parents=True, exist_ok=True)
    being_made = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(being_made, ignore_errors=True)
    being_made.mkdir()
    try:
        yield being_made
        being_made.rename(target)
    finally:
        shutil.rmtree(being_made, ignore_errors=True)


def write_record(folder: Path, made_from: Mapping[str, Any]) -> None:
    """The last file of an export. The card has no sum: people add to it before they push."""
    (folder / EXPORT_RECORD).write_text(json.dumps({**made_from, "files": _sums(folder)}, indent=2) + "\n")


def holds(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Tell whether it is the export that would be made, whole and with nothing added but to its card.

    Raises OSError.
    """
    try:
        record = json.loads((folder / EXPORT_RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return bool(record == {**made_from, "files": _sums(folder)})


def _sums(folder: Path) -> dict[str, str]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return {name: _sum(folder / name) for name in names if name not in (MODEL_CARD, EXPORT_RECORD)}


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_peft_folder(source: Path, target: Path, card: AdapterCard, evaluations: Sequence[Evaluation]) -> None:
    """`source`: a published version that was checked. `target`: an empty folder. Raises OSError, AdapterError."""
    for name in read_manifest(source).files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with open_file(source, name) as file, (target / name).open("wb") as copy:
            shutil.copyfileobj(file, copy)
    write_model_card(target, source, card, evaluations, merged=False)


def write_model_card(
    target: Path, source: Path, card: AdapterCard, evaluations: Sequence[Evaluation], *, merged: bool
) -> None:
    agent, version = source.parent.name, source.name
    (target / MODEL_CARD).write_text(model_card(agent, version, card, evaluations, merged=merged))


def model_card(
    agent: str, version: str, card: AdapterCard, evaluations: Sequence[Evaluation], *, merged: bool = False
) -> str:
    """Write the card in Markdown, with the front matter that hubs read.

    It names no path of the machine it was made on.
    """
    front = {
        "base_model": card.base.name,
        "library_name": "transformers" if merged else "peft",
        "pipeline_tag": "text-generation",
        "tags": ["ratchet", card.algorithm, *([] if merged else ["lora"])],
    }
    lines = [
        "---",
        *(f"{name}: {json.dumps(value)}" for name, value in front.items()),
        "---",
        "",
        f"# {agent} {version}",
        "",
        f"{'The base model with a LoRA adapter merged into it' if merged else 'A LoRA adapter'}, trained by Ratchet "
        f"with `{card.algorithm}` on what the agent `{agent}` had answered, starting from {card.parent}.",
        "",
        f"- Base model: `{card.base.name}`" + (f", revision `{card.base.revision}`" if card.base.revision else ""),
        f"- Learned from {card.data.samples:,} answers to {card.data.groups:,} tasks"
        + (f", {card.data.first:%Y-%m-%d} to {card.data.last:%Y-%m-%d}" if card.data.first and card.data.last else ""),
        f"- Made {card.created:%Y-%m-%d %H:%M} UTC" + (f" by run `{card.run_id}`" if card.run_id else ""),
        "",
        *_evaluation_lines(version, evaluations),
        "## Training",
        "",
        *_table(("hyperparameter", "value"), [(name, json.dumps(v)) for name, v in card.hyperparameters.items()]),
        *_table(("metric", "value"), [(name, json.dumps(value)) for name, value in card.metrics.items()]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _evaluation_lines(version: str, evaluations: Sequence[Evaluation]) -> Iterator[str]:
    for evaluation in evaluations:
        rows = [row for of in evaluation.results if of.version == version for row in map(_row, of.results)]
        if rows:
            yield f"## Evaluation: {evaluation.name}"
            yield ""
            yield (
                f"{evaluation.set.tasks:,} tasks that no training saw, against {evaluation.versions[0].version}, "
                f"scored by {evaluation.scorer}; means with 95 % intervals, differences paired by task."
            )
            yield ""
            yield from _table(("tasks", "one answer before", "after", "difference", "best of", "difference"), rows)


def _row(result: FamilyResult) -> tuple[str, ...]:
    single, best = result.single, result.best
    shown = (_format_interval(single.before), _format_interval(single.after), _format_interval(single.difference))
    return (result.family or "all", *shown, str(result.samples), _format_interval(best.difference))


def _format_interval(value: Interval) -> str:
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(heads)} |"
        yield f"| {' | '.join('---' for _ in heads)} |"
        yield from (f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows)
        yield ""
