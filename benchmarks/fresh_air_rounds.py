"""How long a round takes, on the air alone, of each way to wait for everyone.

    python benchmarks/fresh_air_rounds.py                      20 drops, 5 and 15 nodes, minutes

The slots are those of benchmarks/fresh_air_opponents.py. Of each way the median over drops of the
mean slots of a round, and the worst drop; `its bound` is the time below which no all-reduce can be.
"""

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.fresh_air_opponents import radio_of  # noqa: E402 - the path comes first


def in_rounds(net: Any, nodes: int, slots: int, bits: float, key: Any, *, once: bool) -> Any:
    """Return the stamp that nodes hold after each slot; all offer in every slot."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    offers = jnp.ones(nodes, bool)
    wanted = None if once else ~jnp.eye(nodes, dtype=bool)

    def slot(state: Any, t: Any) -> Any:
        state, out = net.step(state, offers, wanted, bits, jax.random.fold_in(key, t))
        return state, out.held[0, 0]

    return lax.scan(slot, net.init(nodes, key), jnp.arange(slots))[1]


def around_station(net: Any, nodes: int, slots: int, bits: float, key: Any) -> Any:
    """Return in which slots a round of uploads and answers ended."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def slot(carry: Any, t: Any) -> Any:
        state, got, told, has = carry
        up_key, down_key = jax.random.split(jax.random.fold_in(key, t))
        state, up = net.uplink(state, ~got & ~told, bits, up_key)
        got = got | up.arrived
        state, down = net.downlink(state, jnp.all(got) & ~told, bits, down_key)
        told, has = told | down.started, has | down.arrived
        over = jnp.all(has)
        return (state, *(x & ~over for x in (got, told, has))), over

    none = jnp.zeros(nodes, bool)
    return lax.scan(slot, (net.init(nodes, key), none, none, none), jnp.arange(slots))[1]


def rounds(drops: int = 20, slots: int = 300) -> None:
    """Print the slots of a round, without computing, of each way to wait for everyone."""
    import jax
    import numpy as np

    from folkman.keys import Stream, make_key

    dim = 2410
    names = ("station, Prop. 1", "station, turns", "all-reduce", "its bound", "copies", "once each")
    print("| I | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for nodes in (5, 15):
        index = radio_of(nodes, dim, schedule="index")
        summed = radio_of(nodes, dim, sums=True, schedule="index")
        copy, whole = 16.0 * dim, float(summed.bits_per_parameter * dim)
        paper = radio_of(nodes, dim)
        ways = {
            names[0]: lambda key, net=paper, n=nodes, bits=copy: around_station(
                net.star(), n, slots, bits, key
            ),
            names[1]: lambda key, net=index, n=nodes, bits=copy: around_station(
                net.star(), n, slots, bits, key
            ),
            names[2]: lambda key, net=summed, n=nodes, bits=whole: in_rounds(
                net.all_reduce(), n, slots, bits, key, once=False
            ),
            names[4]: lambda key, net=index, n=nodes, bits=copy: in_rounds(
                net.rounds(), n, slots, bits, key, once=False
            ),
            names[5]: lambda key, net=index, n=nodes, bits=copy: in_rounds(
                net.rounds(), n, slots, bits, key, once=True
            ),
        }
        programs = {name: jax.jit(way) for name, way in ways.items()}
        found: dict[str, list[float]] = {name: [] for name in names}
        for drop in range(drops):
            key = make_key(drop, Stream.DELAY)
            for name, program in programs.items():
                seen = np.asarray(program(key))
                ends = np.flatnonzero(seen) if seen.dtype == bool else np.flatnonzero(np.diff(seen))
                # between two rounds in lock-step all offer for one slot
                pause = 0 if seen.dtype == bool else 1
                found[name].append(slots / max(len(ends), 1) - pause)
                if name == names[2] and len(ends):
                    found[names[3]].append(bound(summed, nodes, whole, key, seen, ends + 1))
        texts = [f"{np.median(found[name]):.1f} [{max(found[name]):.1f}]" for name in names]
        print(f"| {nodes} | " + " | ".join(texts) + " |", flush=True)


def bound(radio: Any, nodes: int, bits: float, key: Any, seen: Any, ends: Any) -> float:
    """Return the slots below which no scheme could have been, in the mean over rounds.

    Each link at its best of all blocks of the round: nobody can know that in advance.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from folkman.keys import Stream
    from folkman.radio.all_reduce import least_slots

    def costs(t: Any) -> Any:
        fading = jax.random.fold_in(jax.random.fold_in(key, t), int(Stream.FADING))
        return radio.cost_slots(radio.open_air(nodes, key), bits, fading)

    cost = np.asarray(jax.lax.map(costs, jnp.arange(len(seen))))
    # a round of stamp s starts in the step at the end of slot s - 1, whose draws are cost[s - 1]
    return float(np.mean([least_slots(cost[seen[end] - 1 : end]) for end in ends]))


if __name__ == "__main__":
    rounds()
