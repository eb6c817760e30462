"""A limit on how often something happens: a bucket of tokens that fills with time."""

__all__ = ["RateLimit"]


class RateLimit:
    """At most so many events per second on the long run, and `at_once`. Times are given."""

    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s, self._most, self._left, self._last_s = per_s, at_once, at_once, 0.0

    def takes(self, now_s: float) -> bool:
        """Take one event if it is due."""
        grown = self._left + self._per_s * max(now_s - self._last_s, 0.0)
        self._left, self._last_s = min(grown, self._most), max(now_s, self._last_s)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
