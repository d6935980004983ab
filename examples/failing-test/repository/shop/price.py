"""What a customer pays."""


def total(price: int, count: int) -> int:
    """In cents. From ten pieces on, one in ten is free."""
    return price * (count - count // 11)
