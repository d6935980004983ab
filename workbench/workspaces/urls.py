"""The URLs that may be read: those below what a setting names. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from workbench.workspaces.errors import WorkspaceError

SCHEMES = {"http": 80, "https": 443}


def check_url(url: str, allowed: Sequence[str]) -> str:
    """Raises WorkspaceError for a URL that begins with none of those allowed, by scheme, host, port and folders."""
    asked = _parts(url)
    if asked is None:
        raise WorkspaceError(
            f"{url[:200]!r} is no URL of a workspace: write http or https, a host and a path, without user, password "
            f"or `..`"
        )
    if not any(_is_below(asked, prefix) for one in allowed if (prefix := _parts(one)) is not None):
        raise WorkspaceError(f"{url[:200]!r} is not among the URLs that may be read: see RATCHET_WORKSPACE_URLS")
    return url


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    odd = "\\" in url or "%2e" in url.lower() or "%2f" in url.lower() or "/../" in f"{parts.path}/"
    if parts.scheme not in SCHEMES or not parts.hostname or "@" in parts.netloc or parts.fragment or odd or port == 0:
        return None
    return parts


def _is_below(asked: SplitResult, prefix: SplitResult) -> bool:
    folder = prefix.path if prefix.path.endswith("/") else f"{prefix.path}/"
    return (
        (asked.scheme, asked.hostname) == (prefix.scheme, prefix.hostname)
        and (asked.port or SCHEMES[asked.scheme]) == (prefix.port or SCHEMES[prefix.scheme])
        and f"{asked.path}/".startswith(folder)
    )
