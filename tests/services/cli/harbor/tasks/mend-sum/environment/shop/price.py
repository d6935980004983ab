def total(prices):
    found = 0
    for price in prices[:-1]:
        found += price
    return found
