"""`folkman algorithms`: what each registered method is, read off the method itself."""

from typing import Any

import jax
import jax.numpy as jnp

from folkman.algorithm import ALGORITHMS
from folkman.algorithm.base import Algorithm, Assumption, Place, Prices
from folkman.report.methods import describe_price

__all__ = ["methods"]

DIMS, BITS, NODES = (1000, 2000), 16, 4


def methods() -> list[dict[str, Any]]:
    """Return name, role, assumptions and the bits of a message, by form, of every method with its defaults."""
    return [_row(name, build()) for name, build in ALGORITHMS.items()]


def _row(name: str, algorithm: Algorithm) -> dict[str, Any]:
    server = algorithm.server
    role = "peers, asynchronous"
    if server is not None:
        role = "server"
    elif Assumption.LOCKSTEP in algorithm.assumes:
        role = "peers, in lock-step"
    needs = [need for need in algorithm.assumes if not (need is Assumption.LOCKSTEP and server is None)]
    return {
        "name": name,
        "role": role,
        "node_bits": _formula(algorithm.prices, lambda d: _entries(algorithm, d)),
        "server_bits": "" if server is None else _formula(server.prices, lambda d: _server_entries(server, d)),
        "assumes": "; ".join(sorted(need.value for need in needs)),
    }


def _formula(prices: Prices | None, entries: Any) -> str:
    """Return the price of each form as a formula, found from two sizes of the model; of many forms, the first ones."""
    small, large = (prices(d, BITS) if prices else (entries(d) * BITS,) for d in DIMS)
    forms = [describe_price(a, b, DIMS, BITS) for a, b in zip(small, large, strict=True) if b > 0]
    distinct = list(dict.fromkeys(forms))
    return ", ".join(distinct[:3]) + (", ..." if len(distinct) > 3 else "")


def _entries(algorithm: Algorithm, dim: int) -> int:
    def message() -> jax.Array:
        place = Place(jnp.zeros((), jnp.int32), NODES, jax.random.key(0))
        return algorithm.message(algorithm.init(jnp.zeros(dim), place))

    return jax.eval_shape(message).size


def _server_entries(server: Any, dim: int) -> int:
    return jax.eval_shape(lambda: server.message(server.init(jnp.zeros(dim), NODES))).size
