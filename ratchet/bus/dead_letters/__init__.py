"""Dead letters, and messages no queue took: read without losing one, shown, sent back."""
