"""The states of all nodes after every slot of a simulation."""

import jax
import jax.numpy as jnp
import numpy as np

from folkman.engine import snapshots
from folkman.engine.slot import begin, finish, first
from folkman.faults import NO_FAULTS


def teller(problem, network, algorithm, slots):
    """Return a function of the seed: states (slot + 1, node, ...) and stamps held (slot, rx, tx).

    It is compiled once for all seeds.
    """
    compute = (1,) * problem.num_nodes

    def slot(carry, _):
        held = carry.medium.snapshots.held
        carry, point, keys = begin(problem, network, algorithm, compute, NO_FAULTS, carry)
        carry, _ = finish(
            problem, network, algorithm, NO_FAULTS, carry, problem.gradients(point, keys)
        )
        return carry, (carry.states, held)

    @jax.jit
    def run(seed):
        carry = first(problem, network, algorithm, compute, seed)
        held, nodes = carry.medium, problem.num_nodes
        roomy = snapshots.widen(held.snapshots, nodes * (nodes + 4))  # losses keep old ones in use
        carry = carry._replace(medium=held._replace(snapshots=roomy))
        last, (states, held) = jax.lax.scan(slot, carry, None, slots)
        stacked = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), carry.states, states)
        return (stacked, held), last.medium.snapshots.missing

    def tell(seed=0):
        told, missing = run(seed)
        assert not missing
        return jax.tree.map(np.asarray, told)

    return tell


def server_teller(problem, network, algorithm, slots):
    """Return the server's models (slot + 1, d), its rounds (slot + 1,) and who takes part.

    The last are (slot + 1, node), after each slot of a run with seed 0.
    """
    compute = (1,) * problem.num_nodes

    def told(carry):
        server = carry.medium.server
        return server.memory.params, server.rounds, server.chosen

    def slot(carry, _):
        carry, point, keys = begin(problem, network, algorithm, compute, NO_FAULTS, carry)
        carry, _ = finish(
            problem, network, algorithm, NO_FAULTS, carry, problem.gradients(point, keys)
        )
        return carry, told(carry)

    @jax.jit
    def run():
        carry = first(problem, network, algorithm, compute, 0)
        _, rest = jax.lax.scan(slot, carry, None, slots)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), told(carry), rest)

    return jax.tree.map(np.asarray, run())
