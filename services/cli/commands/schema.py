"""`ratchet schema`: the contract as JSON Schema and AsyncAPI documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if one is not current.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the documents.")] = Path("schemas"),
) -> None:
    """Write a JSON Schema for each message and an AsyncAPI document of the queues; or check that they are current."""
    from services.cli.console import say
    from services.cli.exit_codes import CommandError
    from services.schema_documents import documents

    changed = {out / name: text for name, text in documents().items() if _read(out / name) != text}
    if check and changed:
        raise CommandError(f"not current: {', '.join(map(str, changed))}. Type: ratchet schema")
    for file, text in changed.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        say(f"written: {file}")
    if not changed:
        say(f"all documents in {out} are current")


def _read(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None
