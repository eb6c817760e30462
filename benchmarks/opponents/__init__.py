"""The opponents: scripts that run in environments of their own, and what they share."""
