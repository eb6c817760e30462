"""What a method is told in a slot is the same in the simulator and in its slow twin.

The methods here learn nothing: they write down what they are told. So even what no method of ours
looks at today is held to be the same.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from folkman import (
    Algorithm,
    Broadcast,
    Recording,
    Rounds,
    Server,
    Star,
    constant,
    iid,
    pipelined,
    reference,
    simulate,
)
from folkman.engine.presence import Asleep
from folkman.faults import Faults

NODES = 3


class Notes(NamedTuple):
    """What was told, as digits: one slot, one place."""

    params: Array
    told: Array  # () of the slots so far
    computed: Array  # () gradients since the last that was heard


class ServerNotes(NamedTuple):
    params: Array
    told: Array
    rounds: Array
    answers: Array


def spelled(told, mask):
    """Return the sum so far with the bits of a mask added at another place of it."""
    return 1.01 * told + jnp.dot(mask.astype(told.dtype), 2.0 ** jnp.arange(len(mask)))


def noting(travel):
    """Return a method that writes down who was heard and how old everything is."""

    def init(params, place):
        del place
        return Notes(params, jnp.zeros((), params.dtype), jnp.zeros((), jnp.int32))

    def receive(state, inbox):
        told = spelled(spelled(state.told, inbox.heard), inbox.weight > 0)
        told = told + 0.1 * jnp.sum(jnp.where(inbox.weight > 0, inbox.age, 0))
        computed = jnp.where(jnp.any(inbox.heard), 0, state.computed)
        return Notes(state.params.at[0].set(told), told, computed)

    def update(state, inbox, loss, grad, key):
        del inbox, loss, grad, key
        return state._replace(computed=state.computed + 1)

    return Algorithm(
        name="notes",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=receive,
        travel=travel,
    )


def listening_server():
    """Return a server that writes down who was heard and who is coming, and answers at once."""

    def receive(state, inbox, key):
        del key
        told = spelled(spelled(state.told, inbox.heard), inbox.coming)
        params = state.params.at[0].set(told)
        return ServerNotes(params, told, state.rounds + 1, inbox.heard)

    return Server(
        init=lambda params, number: ServerNotes(
            params, jnp.zeros((), params.dtype), jnp.zeros((), jnp.int32), jnp.zeros(number, bool)
        ),
        receive=receive,
        offers=lambda state: state.answers,
        message=lambda state: state.params,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
    )


def ready(state):
    return state.computed >= 1


WAYS = {
    "peers": Broadcast(),
    "rounds": Rounds(ready=ready),
    "server": Star(listening_server(), ready=ready),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", [constant(3), iid(4)], ids=["constant", "varied"])
@pytest.mark.parametrize(
    "faults", [Faults(), Faults(away=((1, 4, 9),))], ids=["all there", "one away"]
)
def test_simulator_and_reference_tell_a_method_the_same(quadratics, way, network, faults):
    problem, algorithm = quadratics(nodes=NODES, dim=2), noting(WAYS[way])

    run = simulate(
        problem,
        network,
        algorithm,
        slots=14,
        faults=faults,
        recording=Recording(14, timeline=True),
    )
    slow = reference(problem, run.timeline, algorithm, faults=faults)

    assert (run.nodes[:, 0] != np.asarray(problem.initial)[0]).all()
    np.testing.assert_allclose(slow.nodes, run.nodes, rtol=1e-10)
    np.testing.assert_allclose(slow.model, run.model, rtol=1e-10)


def test_a_node_alone_in_lock_step_hears_itself_at_the_end_of_a_round(quadratics):
    problem, algorithm = quadratics(nodes=1, dim=2), noting(Rounds(ready=ready))

    run = simulate(problem, constant(1), algorithm, slots=9, recording=Recording(9, timeline=True))

    assert run.timeline.finished.sum() > 2  # it does not wait for ever
    np.testing.assert_allclose(
        reference(problem, run.timeline, algorithm).nodes, run.nodes, rtol=1e-10
    )


def test_what_comes_while_a_node_sleeps_waits_for_it(quadratics):
    """Who sleeps is brought the same copies as who is awake; who is away is not."""
    awake = np.ones((20, NODES), bool)
    awake[3:9, 1] = False
    problem, algorithm = quadratics(nodes=NODES, dim=2), noting(Broadcast())

    def held(faults):
        run = simulate(
            problem,
            pipelined(4),
            algorithm,
            slots=20,
            faults=faults,
            recording=Recording(20, timeline=True),
        )
        return run.timeline.held[:, 1]

    np.testing.assert_array_equal(held(Asleep(awake))[:, 0], held(Faults())[:, 0])
    assert not np.array_equal(held(Faults(away=((1, 3, 9),)))[:, 0], held(Faults())[:, 0])


def test_a_table_of_sleepers_says_who_is_there_and_that_nobody_is_lost():
    awake = np.array([[True, False], [False, True]])
    asleep = Asleep(awake)

    for slot in range(4):  # the last row goes on
        at = jnp.asarray(slot)
        np.testing.assert_array_equal(asleep.present(2, at), awake[min(slot, 1)])
        assert asleep.receives(2, at).all()
        assert not asleep.begins_anew(2, at).any()
    with pytest.raises(ValueError, match="a table of 3 nodes, got 2"):
        asleep.check(3)
    asleep.check(2)
