"""Language models in this process: loading, tokens, batches."""
