"""Dead letters: read without losing one, shown, sent back."""
