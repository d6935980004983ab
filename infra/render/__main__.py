"""`python -m infra.render --stack dev --out DIR`: every manifest of a stack as YAML, checked. Secrets are placeholders.

Exits with 1 where a check finds something. Needs no cluster, and no command line of Pulumi.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra.checks import findings
from infra.render.manifests import manifests, write
from infra.render.recording import RENDERED, record, stack_configuration


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.render", description=__doc__)
    parser.add_argument("--stack", required=True, help="dev, prod, or another with a Pulumi.<stack>.yaml")
    parser.add_argument("--out", type=Path, required=True, help="folder the YAML files are written to")
    options = parser.parse_args()
    configuration = stack_configuration(options.stack)
    recording = record(options.stack, configuration)
    found = manifests(recording)
    files = list(write(found, options.out))
    say = sys.stdout.write
    say(f"{options.stack}: {len(files)} manifests in {options.out}\n")
    for name, value in recording.outputs.items():
        say(f"  {name}: {value}\n")
    faults = findings(found, manifests(record(options.stack, configuration, passwords=f"{RENDERED}again-")))
    for fault in faults:
        say(f"FAULT {fault}\n")
    say(f"{len(faults)} faults\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
