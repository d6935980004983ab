"""The modules that processes of a fleet share, a folder a subject. Imports run one way: schemas, ratchet, services."""
