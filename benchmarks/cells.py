"""10,000 nodes in 500 cells: 200 slots of the radio network alone, wall clock and peak memory.

python benchmarks/cells.py [CELLS [NODES_PER_CELL [SLOTS]]]
"""

import resource
import sys
import time

import jax
import jax.numpy as jnp
from jax import Array, lax

from folkman.radio.cells import radio_cells
from folkman.radio.delivery import NetworkState, PeerNetwork
from folkman.radio.epochs import rest
from folkman.radio.network import RadioNetwork

PAPER_CNN_BITS = 430_698 * 16


def main() -> None:
    """Lay the cells out, run them, and print what it took."""
    cells, nodes, slots = (
        int(given) for given in (sys.argv[1:] + ["500", "20", "200"][len(sys.argv) - 1 :])
    )
    network, key = RadioNetwork(), jax.random.key(0)
    begun_s = time.perf_counter()
    layout = radio_cells(network, cells=cells, nodes=nodes)
    state = jax.vmap(rest)(layout.air(range(cells)))
    laid_s = time.perf_counter() - begun_s

    peers: PeerNetwork = network.peers()

    @jax.jit
    def roll(state: NetworkState) -> tuple[NetworkState, Array]:
        offers = jnp.ones((cells, nodes), bool)

        def slot(state: NetworkState, t: Array) -> tuple[NetworkState, Array]:
            keys = jax.random.split(jax.random.fold_in(key, t), cells)
            state, delivery = jax.vmap(lambda s, o, k: peers.step(s, o, PAPER_CNN_BITS, k))(
                state, offers, keys
            )
            return state, jnp.mean(t + 1.0 - delivery.held)

        return lax.scan(slot, state, jnp.arange(slots))

    begun_s = time.perf_counter()
    _, ages = jax.block_until_ready(roll(state))
    took_s = time.perf_counter() - begun_s
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{cells} cells of {nodes} nodes: layout {laid_s:.1f} s, {slots} slots with compilation "
        f"{took_s:.1f} s"
    )
    print(f"peak memory {peak_gb:.2f} GB, mean age at the end {float(ages[-1]):.1f} slots")


if __name__ == "__main__":
    main()
