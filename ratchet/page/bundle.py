"""Joins modules of the page into one script: browsers load no module from a disk, and the report is a single file.

It reads the few forms of import and export that the page and what it is built on use; circular imports it does not.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ratchet.page import STATIC

IMPORT = re.compile(r'^import\s*(?:(?P<default>\w+)|\{(?P<names>[^}]*)\})\s*from\s*"(?P<path>[^"]+)";', re.MULTILINE)
EXPORTS = re.compile(r'\bexport\s*\{(?P<names>[^}]*)\}(?:\s*from\s*"(?P<path>[^"]+)")?;?')
DECLARED = re.compile(r"^export (?=(?:async )?(?:const|function|class) (?P<name>\w+))", re.MULTILINE)
DEFAULT = re.compile(r"\bexport default ")


@cache
def bundle(name: str) -> str:
    """The script that does what the module `name` of the page's folder does, with all that it imports."""
    written: dict[Path, str] = {}
    _write(STATIC / name, written)
    return "\n".join(written.values()).replace("</script", "<\\/script")


@cache
def styles(*names: str) -> str:
    return "\n".join((STATIC / name).read_text() for name in names)


def _write(module: Path, written: dict[Path, str]) -> str:
    """The name of the module's exports; it and what it imports are in `written`, in the order they run."""
    name = re.sub(r"\W", "_", str(module.relative_to(STATIC)))
    if module in written:
        return name
    exports: list[str] = []

    def write_import(found: re.Match[str]) -> str:
        source = _write((module.parent / found["path"]).resolve(), written)
        names = f"default: {found['default']}" if found["default"] else found["names"].replace(" as ", ": ")
        return f"const {{{names}}} = {source};"

    def write_export(found: re.Match[str]) -> str:
        source = _write((module.parent / found["path"]).resolve(), written) if found["path"] else None
        for one in filter(None, map(str.strip, found["names"].split(","))):
            inside, _, outside = one.partition(" as ")
            exports.append(f"{outside or inside}: {f'{source}.{inside}' if source else inside}")
        return ""

    def note_declaration(found: re.Match[str]) -> str:
        exports.append(found["name"])
        return ""

    text = IMPORT.sub(write_import, module.read_text())
    text = EXPORTS.sub(write_export, text)
    if module.suffix == ".js":  # in those of others they stand in comments
        text = DECLARED.sub(note_declaration, text)
    if DEFAULT.search(text):
        text = DEFAULT.sub("const by_default = ", text, count=1)
        exports.append("default: by_default")
    written[module] = f'const {name} = (() => {{ "use strict";\n{text}\nreturn {{{", ".join(exports)}}};\n}})();'
    return name
