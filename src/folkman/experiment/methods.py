"""`folkman algorithms`: what each registered method is, read off the method itself."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from folkman.algorithm import ALGORITHMS
from folkman.algorithm.base import Algorithm, Assumption, Place, Price
from folkman.algorithm.travel import Server
from folkman.record.json_file import Json
from folkman.report.methods import describe_price

__all__ = ["methods"]

NODES = 4


def methods() -> list[Json]:
    """Return name, role, assumptions and bits of a message of each method with its defaults.

    `verified` is what its equations were compared with; empty: its file says it part by part.
    """
    return [_row(name, build()) for name, build in ALGORITHMS.items()]


def _row(name: str, algorithm: Algorithm) -> Json:
    travel, declares = algorithm.travel, algorithm.declares
    up = _formula(declares.price, lambda d: _entries(algorithm, d))
    down = " + ".join(
        _formula(server.price, lambda d, server=server: _server_entries(server, d))
        for server in travel.servers
    )
    bits = {"node_bits": up, "server_bits": down, "round_bits": _round(algorithm, up, down)}
    assumes = "; ".join(sorted(need.value for need in declares.assumes))
    row = {"name": name, "role": travel.role, **bits, "assumes": assumes}
    return row | {"verified": declares.verified}


def _round(algorithm: Algorithm, up: str, down: str) -> str:
    """Return what a round costs on the air; without rounds, what a message costs.

    I nodes send in a round, or the M that a server waits for.
    """
    declares = algorithm.declares
    if declares.needs is not None:
        return f"M ({up}) + {down}"
    if algorithm.travel.servers and Assumption.PRESENT not in declares.assumes:
        return f"an upload: {up} + {down}"
    return algorithm.travel.a_round.format(up=up, down=down)


def _formula(price: Price | None, entries: Callable[[int], int]) -> str:
    """Return the price of each form as a formula; of many forms, the first ones."""
    if price is None:
        return describe_price(lambda d, bits: entries(d) * bits)
    known = price.bits
    forms = [
        describe_price(lambda d, bits, k=k: known(d, bits)[k])
        for k in range(min(len(known(1024, 16)), 5))
    ]
    distinct = [form for form in dict.fromkeys(forms) if form != "0"]
    return ", ".join(distinct[:3]) + (", ..." if len(distinct) > 3 else "")


def _entries(algorithm: Algorithm, dim: int) -> int:
    def message() -> jax.Array:
        place = Place(jnp.zeros((), jnp.int32), NODES, jax.random.key(0))
        return algorithm.message(algorithm.init(jnp.zeros(dim), place))

    return jax.eval_shape(message).size


def _server_entries(server: Server, dim: int) -> int:
    return jax.eval_shape(lambda: server.message(server.init(jnp.zeros(dim), NODES))).size
