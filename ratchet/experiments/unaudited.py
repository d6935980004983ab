"""Says where nobody would notice that the judge is fooled: a model scores, and no auditor looks at its scores. Pure."""

from __future__ import annotations

import re

JUDGED = re.compile(r"(?:^|[\s*])(judge|likelihood)\b")
"""A scorer's id that names a model as one of its parts; what a function of the user's asks is not known here."""


def unaudited_judge(scorer: str | None, *, audited: bool) -> str | None:
    """A sentence that says what to set; None where there is an auditor, or no judge. `scorer`: the id in the log."""
    if audited or scorer is None or (found := JUDGED.search(scorer)) is None:
        return None
    return (
        f"nobody would notice a fooled judge: the scores are a model's ({found[1]}), and no auditor looks at them; set "
        f"RATCHET_AUDITOR (ratchet up --auditor verifier:exact)"
    )
