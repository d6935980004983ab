"""Observation for people and Prometheus: figures, gauges, events, experiments as pictures. It decides nothing."""
