"""Computes the price of an order."""


def total(price: int, count: int) -> int:
    """Return the price in cents. From ten pieces on, one in ten is free."""
    return price * (count - count // 11)
