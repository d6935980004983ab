"""`ratchet down`: stop what `ratchet up` started here, and nothing else. Data stays."""

from __future__ import annotations


def down() -> None:
    """Stop the fleet that was started here: services finish what they have in hand, then the broker stops."""
    from services.cli.console import out, say
    from services.cli.fleet.launch import land

    say("stopping the fleet …")
    remarks = land()
    if remarks is None:
        out.print("Nothing of this fleet was running.")
        return
    for remark in remarks:
        say(f"not in order: {remark}")
    out.print("The fleet is down. Its queues, logs and models are kept.")
