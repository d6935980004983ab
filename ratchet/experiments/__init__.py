"""The promotion decision: pure, fed unit by unit, the same live and replayed.

The rule is verdict.py, its limits are `ExperimentPlan` in schemas/records/evidence.py, its statistics are e_process.py
(e-values) and effect.py (what is bet on); unit.py and logged.py say what counts as an outcome.
"""
