"""The way of a task: admitted, sent on, completed, settled, answered; and how users ask and look for it."""
