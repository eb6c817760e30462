"""What a node computes seldom: only in slots in which some node wants it.

A branch of one node (`lax.cond`) becomes a choice between two results when many nodes are computed
at once, and both are then computed in every slot. Here the branch is taken for all nodes together.
"""

from collections.abc import Callable, Sequence

from folkman.arrays import Array, Tracer, jax, jnp, lax

__all__ = ["seldom"]


def seldom(when: Array, compute: Callable[..., Array], otherwise: Array, *given: Array) -> Array:
    """Return `compute(*given)` of a node where `when`, and `otherwise` elsewhere."""
    if not any(isinstance(each, Tracer) for each in (when, otherwise, *given)):
        return compute(*given) if when else otherwise  # one node by hand: nothing is compiled

    @jax.custom_batching.custom_vmap
    def choose(when: Array, otherwise: Array, *given: Array) -> Array:
        return lax.cond(when, lambda: compute(*given), lambda: otherwise)

    @choose.def_vmap
    def of_many(
        number: int, batched: Sequence[bool], when: Array, otherwise: Array, *given: Array
    ) -> tuple[Array, bool]:
        axes = tuple(0 if each else None for each in batched[2:])
        kept = otherwise if batched[1] else jnp.broadcast_to(otherwise, (number, *otherwise.shape))

        def computed() -> Array:
            wanted = jnp.broadcast_to(when, number)
            wanted = wanted.reshape((number,) + (1,) * (kept.ndim - 1))
            return jnp.where(wanted, jax.vmap(compute, axes)(*given), kept)

        return lax.cond(jnp.any(when), computed, lambda: kept), True

    return choose(when, otherwise, *given)
