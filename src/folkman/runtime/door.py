"""Who may stand at a node's door: strangers that have connected and not yet said who they are.

Anybody can connect, without a certificate. So that nobody is kept out by those who only stand
there, a newcomer always gets a place, and somebody else's is taken away for it when all are taken:

    an address that is no neighbour's has `PLACES_AN_ADDRESS` at most
    of all others the one goes who is of an unknown address, of the one with most strangers, and
    has stood there longest; a neighbour needs its place only for the time of a handshake

Handshakes cost computing time. Strangers of unknown addresses share `HANDSHAKES_PER_S`; each known
address has as many of its own. An IPv6 address counts by its network of 64 bits.
"""

from collections import Counter
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address, ip_network

from folkman.runtime.rate_limit import RateLimit

__all__ = ["HANDSHAKES_PER_S", "PLACES", "PLACES_AN_ADDRESS", "Door", "network_of"]

PLACES = 64
PLACES_AN_ADDRESS = 16
HANDSHAKES_PER_S = 50.0


class Door:
    """The strangers, oldest first. Nothing here waits or knows of sockets."""

    def __init__(self, places: int = PLACES, handshakes_per_s: float = HANDSHAKES_PER_S) -> None:
        self._places, self._handshakes_per_s = places, handshakes_per_s
        self._there: dict[Hashable, str] = {}  # stranger -> address, in the order of coming
        self._known: dict[int, str] = {}  # neighbour -> its address
        self._limits = {"": self._limit()}  # "": all that are unknown

    def know(self, neighbour: int, address: str) -> None:
        """Note where a neighbour is; a name that is no address says nothing."""
        if place := network_of(address):
            self._known[neighbour] = place
            known = set(self._known.values())
            self._limits = {
                key: limit for key, limit in self._limits.items() if key in known | {""}
            }
            self._limits.setdefault(place, self._limit())

    def enter(self, stranger: Hashable, address: str) -> Hashable | None:
        """Give a stranger a place; return who has to go for it, perhaps the stranger itself."""
        place = network_of(address)
        known = set(self._known.values())
        self._there[stranger] = place
        count = Counter(self._there.values())
        if place not in known and count[place] > PLACES_AN_ADDRESS:
            goes = next(each for each, where in self._there.items() if where == place)
        elif len(self._there) > self._places:
            busiest = max(count, key=lambda where: (where not in known, count[where]))
            goes = next(each for each, where in self._there.items() if where == busiest)
        else:
            return None
        del self._there[goes]
        return goes

    def leave(self, stranger: Hashable) -> None:
        """Let a stranger go, or become a neighbour."""
        self._there.pop(stranger, None)

    def may_shake_hands(self, address: str, now_s: float) -> bool:
        """Tell whether a handshake with somebody of an address may begin."""
        place = network_of(address)
        return self._limits.get(place, self._limits[""]).takes(now_s)

    def _limit(self) -> RateLimit:
        return RateLimit(self._handshakes_per_s, at_once=self._handshakes_per_s)

    def __len__(self) -> int:
        return len(self._there)


def network_of(address: str) -> str:
    """Return what an address counts as; empty for what is no address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))
    return str(found)
