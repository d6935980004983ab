"""The way of an adapter: trained, checked at the gate, tried on live traffic, promoted or rolled back.

The rule that promotes is ratchet/experiments/promotion_rule.py, its statistics are e_process.py and effect.py there.
Here is what feeds it (arms.py), what follows from a verdict (experiment_transitions.py), who acts on it (promoter.py).
"""
