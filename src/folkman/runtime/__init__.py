"""The same algorithms under the wall clock."""
