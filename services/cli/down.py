"""`ratchet down`: stop what `ratchet up` started here, and nothing else. Data stays."""

from __future__ import annotations

from services.cli.fleet.start import stop_fleet
from services.cli.terminal import out, say


def down() -> None:
    say("stopping the fleet …")
    remarks = stop_fleet()
    if remarks is None:
        out.print("Nothing of this fleet was running.")
        return
    for remark in remarks:
        say(f"not in order: {remark}")
    out.print("The fleet is down. Its queues, logs and models are kept.")
