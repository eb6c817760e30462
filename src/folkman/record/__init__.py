"""Every byte on disk is written and read here: runs, sweeps, live files, scenes, provenance."""
