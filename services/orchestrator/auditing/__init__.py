"""The second scorer: which answers it sees, what it said, and how far judge, auditor and people agree."""
