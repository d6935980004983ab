"""The web page: its files, as the orchestrator serves them and as `ratchet report` writes them into its own."""

from pathlib import Path

STATIC = Path(__file__).resolve().parent / "static"
