"""Programs that answer tasks in sandboxes: what a rollout costs, what bad neighbours cost it, and what kills cost."""
