"""One table of faults × steps of a task's life, on whole fleets that answer tasks meanwhile; then the books.

The faults are listed in table.py, the steps in steps.py; the fleet is in rig.py. What was promised is counted by
tests/acceptance/ledger.py, which reads the logs and the queues from outside.
"""
