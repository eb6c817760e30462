"""Mutants that no schedule can show, each with the reason: its name -> one sentence."""

EXCUSED: dict[str, str] = {}
