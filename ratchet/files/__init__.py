"""Files that grow whole lines, change atomically, are locked or chained. Knows nothing of what is in them."""
