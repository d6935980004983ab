"""Hooks of the site (`mkdocs.yml`): pages from the root of the repository, links out of `docs/`, lists after text.

The documents are written for the repository's own pages, where a link may lead to any file. The site has the documents
alone: a link to another file becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT_PAGES = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_LIST_AFTER_TEXT = re.compile(r"^(?!\s*(?:[-*] |\d+\. |\||#|>|$))(.+)\n(?=(?:- |1\. ))", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie beside `docs/`."""
    root = config.config_file_path.rpartition("/")[0]
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=f"{root}/{name}"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return the text as the site needs it; code stays as it is."""
    here = next((name for name, made in ROOT_PAGES.items() if made == page.file.src_uri), f"docs/{page.file.src_uri}")
    parts = _FENCED.split(markdown)
    return "".join(part if number % 2 else _adapt(part, here, page.file.src_uri) for number, part in enumerate(parts))


def _adapt(text: str, here: str, made: str) -> str:
    text = re.sub(r'src="docs/', 'src="../', text)  # of pictures in the README, one folder up from its own page
    text = _LIST_AFTER_TEXT.sub(r"\1\n\n", text)
    return _LINK.sub(lambda link: _link(link, here, made), text)


def _link(link: re.Match[str], here: str, made: str) -> str:
    picture, text, target = link.groups()
    path, _, anchor = target.partition("#")
    if re.match(r"[a-z]+:", target) or not path:
        return link[0]
    full = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    inside = ROOT_PAGES.get(full, full.removeprefix("docs/") if full.startswith("docs/") else "")
    if not re.search(r"\.\w+$", inside):
        return text
    relative = posixpath.relpath(inside, posixpath.dirname(made) or ".")
    return f"{picture}[{text}]({relative}{'#' if anchor else ''}{anchor})"
