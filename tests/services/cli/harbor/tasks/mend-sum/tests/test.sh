python3 /tests/judge.py
