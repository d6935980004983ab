"""`python -m bench.infra_mutants`: every small mistake in the program of infra/, and which of them nothing finds.

`--sample N --seed S` tries N of them, drawn by the seed. Exits with 1 where a survivor has no reason to be harmless.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from bench.infra_mutants.mutating import mutants
from bench.infra_mutants.reasons import reason_for
from bench.infra_mutants.trying import Trial, Verdict
from bench.machine import machine, write_figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.infra_mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="how many are tried; all if not given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    every = mutants()
    chosen = random.Random(options.seed).sample(every, options.sample) if options.sample else every
    began, trial = time.process_time(), Trial()
    results = []
    for mutant in chosen:
        tried = trial.run(mutant)
        results.append(tried)
        if tried.verdict is Verdict.SURVIVED:
            print(f"{mutant}: {reason_for(tried) or 'NO REASON: ' + '; '.join(tried.changed[:3])}", flush=True)
    counts = Counter(tried.verdict.value for tried in results)
    unexplained = [str(one.mutant) for one in results if one.verdict is Verdict.SURVIVED and not reason_for(one)]
    rows = [[str(one.mutant), one.verdict.value, one.said, reason_for(one), *one.changed[:3]] for one in results]
    figures = {"machine": machine(), "cpu_s": time.process_time() - began, "counts": counts, "mutants": rows}
    write_figures("infra_mutants", figures)
    print(f"{len(results)} of {len(every)}: {dict(counts)}, {len(unexplained)} survivors without a reason", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
