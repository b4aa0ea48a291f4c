"""On a real node: what a user installs, applies and trains, and what may die meanwhile."""
