"""How a node lives: what its core is told once."""

from typing import NamedTuple

__all__ = ["DISK", "DIVERGED", "FAULT", "Settings"]

FAULT, DIVERGED, DISK = 1, 3, 4
"""Exit codes beside 0, done or stopped: a fault of ours, diverged, no disk took the result."""


class Settings(NamedTuple):
    """Times in seconds."""

    steps: int | None = None  # gradients to take; None: for ever
    slot_s: float = 0.0  # at most one gradient in this time; 0: as fast as it goes
    save_every_s: float = 2.0
    keep_every_s: float = 0.5  # between two looks around: hello, health, what was not acknowledged
    period_timeout_s: float = 10.0  # the longest that a receiver is waited for
    retry_s: float = 5.0  # in rounds: what was not acknowledged by then is sent again
    start_wait_s: float = 30.0  # for the neighbours, at the first start
    linger_s: float = 30.0  # for the neighbours, at the end
    alone_s: float = 30.0  # without a link, or without a slot: the node is no longer well
    threshold_bit_s: float = 0.0
    shared_medium: bool = True  # keep to our share of it; off where links do not disturb each other
