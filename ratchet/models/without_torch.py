"""Keeps torch out of a process that loads tokenizers and no model: transformers imports it wherever it is installed,
which takes seconds and 260 MB."""

from __future__ import annotations

import logging
import sys


def keep_torch_out() -> None:
    """To be called before transformers is imported: it goes on as where no torch is installed, and says nothing of
    that."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # this is how Python is told that there is none
    logging.getLogger("transformers").addFilter(lambda told: "PyTorch was not found" not in told.getMessage())
