"""A node's decisions without clock, lock or I/O."""
