"""From text to a checked comparison, and from there to problems, networks and algorithms.

No engine is involved.
"""
