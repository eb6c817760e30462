"""Two clocks of a node: monotonic time that may drift or stop, and a time of day that may be wrong.

Monotonic time never falls. The time of day decides whether certificates are valid, and nothing
else.
"""

__all__ = ["Clock", "TimeOfDay"]


class Clock:
    """Monotonic time of one process, as a function of the world's time."""

    def __init__(self, born_s: float, begins_s: float) -> None:
        self._world_s, self._own_s, self._rate = born_s, begins_s, 1.0

    def now_s(self, world_s: float) -> float:
        """Return what the process reads."""
        return self._own_s + (world_s - self._world_s) * self._rate

    def world_s(self, own_s: float) -> float:
        """Return when the process will read this, if nothing changes."""
        if self._rate == 0.0:
            return float("inf")
        return self._world_s + (own_s - self._own_s) / self._rate

    def run_at(self, world_s: float, rate: float) -> None:
        """Run so much faster than the world from now on; 0 stops."""
        self._own_s, self._world_s, self._rate = self.now_s(world_s), world_s, rate


class TimeOfDay:
    """What a node takes the time of day for."""

    def __init__(self) -> None:
        self.off_s = 0.0  # skew and jumps

    def now_s(self, world_s: float) -> float:
        """Return the time of day as the node has it, in the world's own count."""
        return world_s + self.off_s
