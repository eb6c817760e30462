"""Every byte on disk is written and read here: run folders, sweeps, live files, scenes, provenance."""
