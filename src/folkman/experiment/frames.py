"""One frame of a scene, read off a mark of the simulator: it looks and never touches.

Positions, links, shares and ages are what the network's state says. The SINR of what is on the air
is drawn again from the same key; it is kept where it explains the schedule, and is NaN otherwise
(nodes may have walked since).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.engine.metrics import node_models
from folkman.engine.programs import compiled
from folkman.engine.simulate import Mark, Simulation
from folkman.keys import Stream, make_key
from folkman.radio.air import Air
from folkman.radio.delivery import NetworkState, below
from folkman.radio.epochs import LockstepRadio, RadioState
from folkman.radio.network import RadioNetwork
from folkman.radio.serial import SerialState
from folkman.radio.serial_rounds import SerialRoundState
from folkman.radio.serial_star import SerialStarState
from folkman.radio.star import StarRadio
from folkman.record.scene import MOST_NODES, MOVING, Scene
from folkman.units import db_to_linear

__all__ = ["frame_of"]

NEAR = 1.6
"""Interferers within this many cell radii are kept."""


def frame_of(simulation: Simulation, mark: Mark) -> Scene:
    """Return the scene at a mark, one frame."""
    problem, carry = simulation.problem, mark.carry
    slot = int(carry.slot)
    view = simulation.medium.view(carry.medium, slot)
    nodes, servers = problem.num_nodes, view.servers
    size = nodes + servers
    state = _below(carry.medium.network)
    network = below(simulation.network)
    radio = network if isinstance(network, RadioNetwork) else None
    air = getattr(state, "air", None)
    air = air if isinstance(air, Air) else None  # a shared channel has no places
    pairs = size if size <= MOST_NODES else 0
    centre, models = node_models(simulation, mark)
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges says so itself
        apart = np.linalg.norm(np.asarray(models) - np.asarray(centre)[None], axis=1)
    on_air, left, share = _on_air(state, radio, nodes, servers)
    least_db = _least_db(carry.medium.network, radio)
    sinr_db = np.full(on_air.shape, np.nan)
    if pairs:
        sinr_db = _sinr_db(state, radio, on_air, carry.seed, least_db)
    none = [0] * servers
    frame = Scene(
        slot=np.array(slot, np.int32),
        seconds=np.array(slot * simulation.clock.slot_s),
        positions_m=_positions(air, size, servers),
        age_slots=view.ages[:pairs, :pairs],
        age_sums=_age_sums(simulation, mark)[:pairs, :pairs],
        on_air=on_air[:pairs, :pairs],
        left_slots=left,
        stamp=view.stamps,
        air_slots=np.append(_air_slots(simulation, mark), [np.nan] * servers),
        share=share,
        sinr_db=sinr_db[:pairs, :pairs].astype(np.float32),
        disagreement=np.append(apart, [0.0] * servers).astype(np.float32),
        gradients=np.append(np.asarray(mark.totals.gradients), none).astype(np.int64),
        samples=np.append(np.asarray(problem.count), none).astype(np.int64),
        interferers_m=_interferers(air, radio),
        cell_radius_m=radio.cell_radius_m if radio else float("nan"),
        bandwidth_hz=radio.bandwidth_hz if radio else float("nan"),
        threshold_db=float(radio.threshold_db) if radio else float("nan"),
        server=bool(servers),
    )
    return frame._replace(**{name: getattr(frame, name)[None] for name in MOVING})


def _age_sums(simulation: Simulation, mark: Mark) -> NDArray[np.int64]:
    """Return the ages summed over all slots; nothing if an earlier version began the run."""
    sums = mark.totals.held_ages
    return simulation.medium.paired(sums) if sums.size else np.zeros((0, 0), np.int64)


def _air_slots(simulation: Simulation, mark: Mark) -> NDArray[np.float64]:
    """Return how long each node sent over all slots, (node,).

    NaN if the network does not tell, or an earlier version began the run.
    """
    transmit = mark.totals.on_air.transmit
    if not simulation.network.times_air or not transmit:
        return np.full(simulation.problem.num_nodes, np.nan)
    return np.array(transmit)


def _below(state: NetworkState) -> NetworkState:
    """Return the network's own state, under losses and lock-step."""
    state = getattr(state, "inner", state)
    return state.radio if isinstance(state, LockstepRadio) else state


def _positions(air: Air | None, size: int, servers: int) -> NDArray[np.float32]:
    if air is None:
        return np.full((size, 2), np.nan, np.float32)
    nodes = np.asarray(air.nodes.positions_m, np.float32)
    station = np.zeros((servers, 2), np.float32)  # at the origin
    return np.concatenate([nodes, station])


def _interferers(air: Air | None, radio: RadioNetwork | None) -> NDArray[np.float32]:
    if air is None or radio is None:
        return np.zeros((0, 2), np.float32)
    every, present = air.interferers.positions_m, air.interferers.present
    points = np.asarray(every, np.float32)[np.asarray(present)]
    return points[np.abs(points).max(axis=1, initial=0.0) < NEAR * radio.cell_radius_m]


def _on_air(
    state: NetworkState, radio: RadioNetwork | None, nodes: int, servers: int
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.float32]]:
    """Return what is on its way (rx, tx), its remaining slots, and the bandwidth shares (tx,)."""
    size = nodes + servers
    on_air, left = np.zeros((size, size), bool), np.full(size, -1, np.int32)
    share = np.full(size, np.nan, np.float32)
    if isinstance(state, RadioState):
        left = np.asarray(state.left, np.int32)
        on_air = np.asarray(state.linked) & (left > 0)[None]
    elif isinstance(state, SerialState | SerialRoundState):
        flight = state.flight if isinstance(state, SerialState) else state
        sending = np.arange(nodes) == int(flight.sender)
        left = np.where(sending, np.ceil(np.asarray(state.busy)), 0).astype(np.int32)
        on_air = np.asarray(flight.receivers)[:, None] & sending[None]
        share = sending.astype(np.float32)  # one at a time has the whole band
    elif servers == 1 and isinstance(state, SerialStarState):
        up, down = np.asarray(state.up.on_air), np.asarray(state.down.on_air)
        on_air[nodes, :nodes], on_air[:nodes, nodes] = up, down
        up_slots, down_slots = (np.ceil(float(way.busy)) for way in (state.up, state.down))
        left = np.append(up * up_slots, down.any() * down_slots).astype(np.int32)
        share = np.append(up, down.any()).astype(np.float32)  # each direction has a band of its own
    elif servers == 1 and hasattr(state, "up_left"):
        up, down = np.asarray(state.up_left), np.asarray(state.down_left)
        on_air[nodes, :nodes], on_air[:nodes, nodes] = up > 0, down > 0
        left = np.append(np.maximum(up, 0), max(int(down.max(initial=0)), 0)).astype(np.int32)
    if radio is not None and isinstance(state, RadioState | StarRadio):
        used = np.where(left[:nodes] > 0, np.asarray(state.in_use_hz), 0.0) / radio.bandwidth_hz
        share = np.append(used, [float(left[-1] > 0)] * servers).astype(np.float32)
    return on_air, left, share


def _least_db(state: NetworkState, radio: RadioNetwork | None) -> float:
    """Return the SINR above which links are scheduled; in lock-step everyone is waited for."""
    if radio is None:
        return float("nan")
    in_lockstep = isinstance(getattr(state, "inner", state), LockstepRadio)
    return min(radio.threshold_db, radio.least_sinr_db) if in_lockstep else radio.threshold_db


def _sinr_db(
    state: NetworkState,
    radio: RadioNetwork | None,
    on_air: NDArray[np.bool_],
    seed: Array,
    least_db: float,
) -> NDArray[np.float64]:
    """Return the SINR of what is on the air, redrawn for each block in which a broadcast began."""
    found = np.full(on_air.shape, np.nan)
    if radio is None or not isinstance(state, RadioState | SerialState):
        return found
    sending = on_air.any(axis=0)
    if isinstance(state, SerialState):  # no threshold: all who are addressed hear
        stamps, least_db = np.full(on_air.shape[1], int(state.flight.began)), -np.inf
    else:
        stamps = np.asarray(state.stamp)
    same = radio.in_space if type(radio) is RadioNetwork else radio
    for stamp in np.unique(stamps[sending]):
        block = np.asarray(_draw(same, state.air, seed, jnp.int32(stamp - 1)), float)
        columns = sending & (stamps == stamp)
        found[:, columns] = block[:, columns]
    heard = found > float(db_to_linear(least_db))
    return np.where(on_air & heard, 10 * np.log10(np.where(heard, found, 1.0)), np.nan)


@compiled(fixed=(0,), once=True)
def _draw(radio: RadioNetwork, air: Air, seed: Array, slot: Array) -> Array:
    key = jax.random.fold_in(make_key(seed, Stream.DELAY), slot)
    return radio.sinr(air, jax.random.fold_in(key, int(Stream.FADING)))
