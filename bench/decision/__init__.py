"""How often the promotion decision is wrong when nothing is better, and how soon it is right when something is."""
