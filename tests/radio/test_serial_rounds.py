"""Rounds, sums of all and uploads, one after the other on the whole band."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.radio import serial_star
from folkman.radio.all_reduce import AllReduce, best_tree, least_slots
from folkman.radio.delay import constant
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.serial import Control
from folkman.radio.serial_rounds import Copies, SerialRounds
from folkman.radio.shared import shared
from folkman.radio.turns import no_patience, worth_waiting
from tests.reference import turns as plain

SLOTS, NODES = 80, 4


@dataclass(frozen=True)
class Given:
    """A band whose costs are given for each slot: (slot, rx, tx)."""

    message = "copy"
    control_bits = 0
    weights = "alike"
    contention_slots = 0.0
    costs: Any

    @property
    def control(self) -> Control:
        """Let all nodes know everything."""
        return "ideal"

    def open_air(self, num_nodes: int, key: Any) -> Any:
        """Return the number of the slot."""
        del num_nodes, key
        return jnp.zeros((), jnp.int32)

    def next_air(self, air: Any, slot: Any, key: Any) -> Any:
        """Return the number of the slot that begins."""
        del air, key
        return slot

    def cost_slots(self, air: Any, bits: Any, key: Any) -> Any:
        """Return the costs of this slot."""
        del bits, key
        return jnp.asarray(self.costs)[air]


def drawn_costs(seed: int, nodes: int = NODES, slots: int = SLOTS) -> np.ndarray:
    """Return costs that fade around those of a placement, some of them hopeless now and then."""
    draw = np.random.default_rng(seed)
    place = draw.uniform(-1, 1, (nodes, 2))
    far = np.linalg.norm(place[:, None] - place[None], axis=2) + 0.3
    fading = draw.exponential(1.0, (slots + 1, nodes, nodes))
    return (0.25 / np.log2(1 + fading / far**4)).astype(np.float32)


def followed(network: SerialRounds, wanted: Any, slots: int = SLOTS, nodes: int = NODES) -> Any:
    """Return the stamps held and the transfers started in each slot, everyone offering."""
    offers = jnp.ones(nodes, bool)

    def slot(state: Any, t: Any) -> Any:
        state, out = network.step(state, offers, wanted, 1.0, jax.random.fold_in(key, t))
        return state, out

    key = jax.random.key(0)
    return jax.jit(lambda: jax.lax.scan(slot, network.init(nodes, key), jnp.arange(slots)))()


RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], bool)
TASKS = {
    "copies": (Copies(), plain.Copies, ~np.eye(NODES, dtype=bool)),
    "ring": (Copies(), plain.Copies, RING),
    "once": (Copies(), plain.Copies, None),
    "sums": (AllReduce(), plain.Sums, None),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_plain_telling_of_the_schedule_sends_the_same(name: str) -> None:
    task, told_plainly, wanted = TASKS[name]
    offers = jnp.ones(NODES, bool)
    asked: Any = ~np.eye(NODES, dtype=bool) if name == "sums" else wanted

    @jax.jit
    def all_slots(costs: Any) -> Any:
        network = SerialRounds(Given(costs), task)
        key = jax.random.key(0)

        def slot(state: Any, t: Any) -> Any:
            return network.step(state, offers, asked, 1.0, jax.random.fold_in(key, t))

        return jax.lax.scan(slot, network.init(NODES, key), jnp.arange(SLOTS))

    for seed in range(4):
        costs = drawn_costs(seed)
        state, out = all_slots(costs)
        held, started = plain.rounds(costs.astype(float), told_plainly, wanted)
        got = [[int(out.transfers[t].sum()), int(out.copies[t].sum())] for t in range(SLOTS)]
        assert got == [[len(each), sum(len(r) for _, r in each)] for each in started]
        linked = [{(int(i), int(k)) for i, k in np.argwhere(out.linked[t])} for t in range(SLOTS)]
        assert linked == [{(i, k) for k, rs in each for i in rs} for each in started]
        assert [int(h) for h in out.held[:, 0, 0]] == held
        assert len(set(held)) > 3  # rounds do end
        # one at a time: what was on the air fits into the time there was
        assert float(state.sums.air_slots) <= SLOTS + float(costs.max())


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("message_slots", [0.25, 0.5, 2.0])
def test_on_a_shared_channel_a_round_takes_one_message_of_every_node(
    nodes: int, message_slots: float
) -> None:
    channel = shared(message_slots)
    everyone = ~np.eye(nodes, dtype=bool)
    for network in (channel.rounds(), channel.all_reduce()):
        state, out = followed(network, everyone, slots=40, nodes=nodes)
        lasts = max(int(np.ceil(nodes * message_slots)), 1) if nodes > 1 else 1
        held = np.asarray(out.held[:, 0, 0])
        # it begins at the end of slot 0; its end is told `lasts` slots later, and one slot passes
        starts = [1 + r * (lasts + 1) for r in range(40) if r * (lasts + 1) + lasts < 40]
        assert sorted(set(held.tolist()) - {0}) == starts
        assert int(out.transfers.sum()) >= len(starts) * (nodes if nodes > 1 else 0)
        if nodes > 1 and starts:
            assert float(state.sums.round_slots / state.sums.rounds) == pytest.approx(
                nodes * message_slots, rel=1e-5
            )


def test_the_bound_of_a_sum_is_what_two_nodes_and_a_shared_channel_need() -> None:
    two = np.array([[9.0, 0.4], [0.7, 9.0]])
    assert least_slots(two) == pytest.approx(1.1)
    assert least_slots(np.full((6, 6), 0.5)) == pytest.approx(3.0)
    assert least_slots(np.zeros((1, 1))) == 0.0


def test_no_round_of_sums_is_below_the_bound() -> None:
    for seed in range(3):
        costs = drawn_costs(10 + seed)
        state, _ = followed(SerialRounds(Given(costs), AllReduce()), None)
        best = least_slots(costs)
        mean = float(state.sums.round_slots / state.sums.rounds)
        assert best < mean < 30 * best


def test_the_tree_over_a_line_has_its_root_in_the_middle() -> None:
    place = np.arange(5.0)
    cost = jnp.asarray(np.abs(place[:, None] - place[None]) ** 2, jnp.float32)
    tree = best_tree(cost, jnp.ones(5, bool))
    assert tree.parent.tolist() == [1, 2, -1, 2, 3]
    assert float(tree.cost_slots) == 4.0
    assert best_tree(cost, jnp.asarray([True, False, False, True, False])).parent.tolist() in (
        [-1, -1, -1, 0, -1],
        [3, -1, -1, -1, -1],
    )


def test_waiting_is_worth_what_a_plain_search_says() -> None:
    draw = np.random.default_rng(0)
    for number in (1, 5, 16):
        costs = draw.exponential(1.0, (number, 7)) ** -1
        padded = np.full((16, 7), np.inf)
        padded[:number] = costs
        found = worth_waiting(jnp.asarray(padded, jnp.float32))
        wanted = [plain.worth(costs[:, link]) for link in range(7)]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_a_round_waits_for_who_is_away() -> None:
    network = SerialRounds(Given(np.full((60, NODES, NODES), 0.2, np.float32)), AllReduce())
    state, offers = network.init(NODES, jax.random.key(0)), jnp.ones(NODES, bool)
    step = jax.jit(lambda state, t: network.step(state, offers, None, 1.0, jax.random.key(t)))
    attend = jax.jit(network.attend)
    held, heard = [], []
    for t in range(10):
        present = jnp.asarray([True, True, True, t >= 8])  # in the slot after t
        state, out = step(attend(state, present), t)
        held.append(int(out.held[0, 0]))
        heard.append(bool(out.linked[3].any() | out.linked[:, 3].any()))
    assert heard == [False] * 8 + [True, False]
    assert held == [0] * 9 + [1]  # the rest of the round takes less than the slot after 8


def test_who_leaves_during_a_transfer_has_not_heard_it() -> None:
    network = SerialRounds(Given(np.full((60, 2, 2), 1.5, np.float32)))
    everyone, offers = jnp.asarray(~np.eye(2, dtype=bool)), jnp.ones(2, bool)
    step = jax.jit(lambda state, t: network.step(state, offers, everyone, 1.0, jax.random.key(t)))
    ends = {}
    for away_in in (None, 2):  # the first transfer is on the air in slots 1 and 2
        state, held, sent = network.init(2, jax.random.key(0)), [], 0
        for t in range(9):
            there = jnp.asarray([True, t + 1 != away_in])
            state, out = step(network.attend(state, there), t)
            held.append(int(out.held[0, 0]))
            sent += int(out.transfers.sum())
            if held[-1]:
                break
        ends[away_in] = (len(held), sent)
    assert ends == {None: (4, 2), 2: (6, 3)}  # 3.0 slots on the air, or 4.5


@pytest.mark.parametrize("face", ["rounds", "all_reduce"])
def test_what_is_lost_is_sent_again(face: str) -> None:
    everyone = ~np.eye(5, dtype=bool)
    sure, _ = followed(getattr(shared(0.2), face)(), everyone, slots=100, nodes=5)
    lossy = getattr(Lossy(shared(0.2), 0.3), face)()
    assert isinstance(lossy, SerialRounds)
    state, out = followed(lossy, everyone, slots=100, nodes=5)
    assert float(sure.sums.number / sure.sums.rounds) == pytest.approx(5.0)
    assert float(state.sums.number / state.sums.rounds) > 5.8
    assert int(state.sums.rounds) > 20
    assert len(set(np.asarray(out.held[:, 0, 0]).tolist())) > 20


def test_networks_without_sums_bring_everything_to_everyone() -> None:
    assert type(constant(3).all_reduce()) is type(constant(3).rounds())
    assert not getattr(RadioNetwork().all_reduce(), "sums", False)
    index: Any = RadioNetwork(schedule="index")
    assert index.all_reduce().sums
    assert not index.rounds().sums


def uploaded(costs: np.ndarray, choose: Any) -> list[list[int]]:
    """Return who is done in each slot, by the network's own steps."""
    nodes = costs.shape[1]
    none = jnp.zeros(nodes, bool)
    way = serial_star.Way(
        ~none, none, jnp.zeros(()), none, no_patience(nodes), jnp.zeros(nodes), jnp.zeros(())
    )
    done = []
    for cost in costs:
        way, _ = serial_star._fill(way, jnp.asarray(cost), choose)
        done.append(np.flatnonzero(way.done).tolist())
    return done


def test_uploads_of_one_length_follow_each_other() -> None:
    costs = np.full((4, 5), 0.4, np.float32)
    # ends at 0.4, 0.8, 1.2, 1.6 and 2.0 slots
    assert uploaded(costs, serial_star.one_at_a_time) == [[0, 1], [2, 3, 4], [], []]


def test_an_upload_waits_for_a_good_slot() -> None:
    costs = np.array([[0.5, 40.0], [0.5, 40.0], [0.5, 0.5], [0.5, 40.0]], np.float32)
    assert uploaded(costs, serial_star.one_at_a_time) == [[0], [], [1], []]


def test_one_broadcast_answers_all_who_are_near() -> None:
    costs = np.array([[0.4, 0.5, 0.5, 3.0], [0.4, 0.4, 0.4, 0.9], [1, 1, 1, 1]], np.float32)
    assert uploaded(costs, serial_star.to_a_prefix) == [[0, 1, 2], [3], []]
