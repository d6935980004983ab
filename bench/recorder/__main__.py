"""`python -m bench.recorder`: what Ratchet's recorder adds to an engine, beside LiteLLM's proxy and Agent Lightning's.

One scripted engine for all, in a process of its own, which speaks as vLLM does and keeps to a clock. 64 agents hold
conversations of 8 turns through one contestant after the other, by turns, and each round has all of them:

  paced      the engine gives each answer a token every 20 ms, as a busy server does: what a contestant adds to the
             first token, and whether tokens still come as fast as the engine gives them
  flat out   the engine waits for nothing: how many tokens a second a contestant can pass on at most
  one long   one conversation of 50 turns: whether a turn costs more the more there were

each with answers that are streamed and with answers that come whole, for Agent Lightning's proxy refuses to stream.
Ratios are to the bare engine in the same round; the figures are medians over the rounds, with the lowest and highest.
What was recorded is held against what the engine sent: a difference is a complaint. Contestants that are not installed
are made in environments of their own, at the first run, some minutes; one that can't be had is said to be missing.

  python -m bench.recorder --quick                     does it run at all
  python -m bench.recorder --only bare,recorder        ours alone
  python -m bench.recorder --settings paced --rounds 5

Exit code 0 if all bars that were measured are met and nothing is complained of.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.recorder.compare import compare, settings
from bench.recorder.contestants import BARE, ENVIRONMENTS, NAMES
from bench.recorder.report import as_json, bars, table

OUT = Path(__file__).parents[1] / "out" / "recorder.json"
TOKENS = 40


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recorder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"tokens of an answer, its end included ({TOKENS})")
    parser.add_argument("--only", default=",".join(NAMES), help=f"contestants, by comma ({','.join(NAMES)})")
    parser.add_argument("--settings", default="", help="those whose names begin so, by comma (all)")
    parser.add_argument("--quick", action="store_true", help="one round of few and short conversations")
    parser.add_argument(
        "--environments", type=Path, default=ENVIRONMENTS, help="folder of the contestants' environments (.venv-bench)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    given = parser.parse_args(arguments)
    given.only = list(dict.fromkeys((BARE, *given.only.split(","))))
    if strange := set(given.only) - set(NAMES):
        parser.error(f"no contestant {', '.join(sorted(strange))}: there are {', '.join(NAMES)}")
    wanted = tuple(name.strip() for name in given.settings.split(","))
    given.settings = [one for one in settings(given.tokens, given.quick) if one.name.startswith(wanted)]
    if not given.settings:
        parser.error(f"no setting begins with {' or '.join(wanted)}")
    given.rounds = 1 if given.quick else given.rounds
    return given


def main() -> int:
    given = options()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    found = uvloop.run(compare(given))
    told = as_json(found, given.settings, given.tokens)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told, indent=2) if given.json else table(found, given.settings, given.tokens))
    return 0 if not found.complaints and all(bar["met"] for bar in bars(found, given.settings, given.tokens)) else 1


if __name__ == "__main__":
    sys.exit(main())
