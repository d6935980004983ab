"""What an agent and a model said to each other, token for token: pure, without a model, a network or a disk."""
