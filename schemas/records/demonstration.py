"""A demonstration: a text that is known to be good for a prompt, and who knows it. A notion of the log, not a record.

`reference`: a task's reference that earns full marks from the fleet's scorer when it is scored as an answer.
`big_model`: the answer of the big model of a cascade, which scored no less than the small one's best.
`approval`: what a person had a program's result be, where the result is what the model said last.
`correction`: what an application or a person gave with their feedback, as the answer it should have been.
"""

from __future__ import annotations

from typing import Literal

DemonstrationSource = Literal["reference", "correction", "big_model", "approval"]
