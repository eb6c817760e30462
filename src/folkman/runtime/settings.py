"""How a node lives: its folder, its pace, its patience."""

from pathlib import Path
from typing import NamedTuple

__all__ = ["Settings"]


class Settings(NamedTuple):
    """How a node lives. Times in seconds."""

    folder: Path
    fingerprint: str  # of the run: a state of another one is refused
    steps: int | None = None  # gradients to take; None: for ever
    slot_s: float = 0.0  # at most one gradient in this time; 0: as fast as it goes
    save_every_s: float = 2.0
    period_timeout_s: float = 10.0  # a receiver that has not acknowledged by then is no longer waited for
    retry_s: float = 5.0  # in rounds: what was not acknowledged by then is sent again
    start_wait_s: float = 30.0  # for the neighbours, at the first start
    linger_s: float = 30.0  # for the neighbours, at the end
    threshold_bit_s: float = 0.0
    shared_medium: bool = True  # keep to our share of it; off where links do not disturb each other
    timeline: bool = True
