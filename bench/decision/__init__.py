"""Simulations of the promotion decision: how often it is wrong, and how soon it is right."""
