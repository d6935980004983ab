"""python -m tests.golden: renew the golden files, which freeze what users see.

A change here is a change that users see: it belongs into CHANGELOG.md, as one line that a user understands.

What is generated elsewhere is not frozen twice: messages, records, queues with their arguments and the routes' shapes
in `schemas/generated/` (`ratchet schema`), the settings with their defaults in `docs/settings.md`
(`python -m tests.docs.settings_page`). The folder `fleet/` is never renewed: it is what a real fleet of version 0.1.0
left on disk after one experiment, and every later version must read it.
"""

from __future__ import annotations

from tests.golden.logged import LINES, REWRITERS, rewritten
from tests.golden.surface import SURFACE

if __name__ == "__main__":
    for path, text in SURFACE.items():
        path.write_text(text())
    for kind in REWRITERS:
        (LINES / f"{kind}.jsonl").write_bytes(rewritten(kind))
