"""`ratchet verify`: can a task's verifier be fooled?"""
