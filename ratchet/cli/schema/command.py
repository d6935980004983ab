"""`ratchet schema`: the contract as JSON Schema, AsyncAPI and OpenAPI documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if one is not current.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the documents.")] = Path("schemas/generated"),
) -> None:
    """Write a JSON Schema for each message, an AsyncAPI document of the queues, and an OpenAPI document for each
    service; or check that they are current.
    """
    from ratchet.cli.schema.documents import documents, openapi_documents
    from ratchet.cli.terminal.console import say
    from ratchet.cli.terminal.errors import CommandError

    changed = {
        out / name: text for name, text in (documents() | openapi_documents()).items() if _read(out / name) != text
    }
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
