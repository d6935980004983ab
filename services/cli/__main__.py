"""The `ratchet` command."""

from __future__ import annotations


def main() -> None:
    """Exit codes: `ratchet --help` lists them."""
    from services.cli.app import app

    app(prog_name="ratchet")


if __name__ == "__main__":
    main()
