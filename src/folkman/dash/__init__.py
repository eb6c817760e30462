"""The live page: what a run, a sweep or a cluster does, while it does it."""
