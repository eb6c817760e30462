"""The same algorithms under a simulated clock."""
