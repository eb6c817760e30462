"""Where nodes and interferers are before slot 0: drawn by one program for all methods in a cell.

A network draws its places itself, within the program that makes all that a run begins with. That
program differs from method to method, and placing is most of what it takes to compile. So the
simulator draws them before, and hands them over as a `PlacedRadio`.
"""

from dataclasses import replace

from jax.typing import ArrayLike

from folkman.engine.programs import compiled
from folkman.keys import Stream, make_key
from folkman.radio.air import Air
from folkman.radio.cells import PlacedRadio
from folkman.radio.delivery import Network
from folkman.radio.network import RadioNetwork
from folkman.radio.wrapped import Wrapped

__all__ = ["placed"]


def placed(network: Network, num_nodes: int, seed: ArrayLike) -> Network:
    """Return a network with the places that it would draw itself, if it is the radio.

    Another network, also a kind of radio that places nodes in its own way, is returned as it is.
    """
    if isinstance(network, Wrapped):
        return replace(network, network=placed(network.network, num_nodes, seed))
    if type(network) is not RadioNetwork:
        return network
    return PlacedRadio.of(network, _open(network.in_space, num_nodes, seed))


@compiled(fixed=(0, 1), once=True)
def _open(radio: RadioNetwork, num_nodes: int, seed: ArrayLike) -> Air:
    return radio.open_air(num_nodes, make_key(seed, Stream.DELAY))
