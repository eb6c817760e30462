"""Faults: who is away does nothing, who lies sends lies, and methods that cannot bear it are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Clock,
    Faults,
    Recording,
    async_sharing,
    constant,
    dpsgd,
    fedavg,
    ideal,
    pipelined,
    reference,
    simulate,
    snapshot,
)
from folkman.algorithm.adpsgd import adpsgd
from folkman.algorithm.cga import cga
from folkman.algorithm.fedap import fedap
from folkman.algorithm.fedasync import fedasync
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.fedsa import fedsa
from folkman.faults import NO_FAULTS
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork

NODES = 4


def run_with(problem, network, algorithm, faults, slots=12, **options):
    return simulate(
        problem,
        network,
        algorithm,
        slots=slots,
        recording=Recording(1, timeline=True),
        faults=faults,
        **options,
    )


def test_a_node_away_computes_hears_and_sends_nothing(quadratics):
    faults = Faults(away=((2, 3, 7),))
    run = run_with(quadratics(nodes=NODES), ideal(), async_sharing(0.1), faults)

    finished, held, sends = run.timeline.finished, run.timeline.held, run.timeline.sends
    assert not finished[3:7, 2].any()
    assert finished[:3, 2].all()
    assert finished[7:, 2].all()
    assert finished[:, [0, 1, 3]].all()
    np.testing.assert_array_equal(
        held[4:8, 2, :2], np.broadcast_to(held[4, 2, :2], (4, 2))
    )  # nothing new until back
    assert not sends[3:7, 2].any()
    assert sends[:3].all()
    np.testing.assert_array_equal(held[4:8, 0, 2], 3)  # its last message stays, and grows old
    assert run.column("gradients")[-1] == pytest.approx((12 * NODES - 4) / NODES)


@pytest.mark.parametrize(
    ("algorithm", "clock"),
    [
        (async_sharing(0.05, own="aligned"), Clock()),
        (async_sharing(0.05, own="aligned"), Clock(compute_slots=(1, 2, 1, 3))),
        (dpsgd(0.05), Clock()),
    ],
    ids=["all learn in every slot", "some take longer", "a method that waits"],
)
def test_faults_after_the_end_change_nothing(quadratics, algorithm, clock):
    """Where all nodes learn in every slot no state is chosen node by node: the same numbers."""
    problem = quadratics(nodes=NODES)
    network = RadioNetwork(slot_s=1.0, schedule="index", message="sum")
    never = Faults(away=((1, 900, 901),))
    if algorithm.name == "dpsgd":
        network = pipelined(2)

    runs = [
        simulate(problem, network, algorithm, slots=30, seed=2, clock=clock, faults=faults)
        for faults in (NO_FAULTS, never)
    ]

    assert NO_FAULTS.all_there
    assert not never.all_there
    np.testing.assert_array_equal(runs[0].nodes, runs[1].nodes)
    assert [row["train_loss"] for row in runs[0].rows] == [r["train_loss"] for r in runs[1].rows]


def test_a_crashed_node_that_comes_back_begins_at_the_first_model(quadratics):
    problem = quadratics(nodes=NODES)
    back = simulate(
        problem, ideal(), async_sharing(0.1), slots=6, faults=Faults(crash=((1, 2, 6),))
    )
    gone = simulate(
        problem, ideal(), async_sharing(0.1), slots=7, faults=Faults(crash=((1, 2, 6),))
    )

    paused = simulate(
        problem, ideal(), async_sharing(0.1), slots=6, faults=Faults(away=((1, 2, 6),))
    )
    np.testing.assert_allclose(back.nodes[1], paused.nodes[1])  # frozen with what it had
    moved = np.linalg.norm(gone.nodes[1] - np.asarray(problem.initial))
    assert (
        0 < moved < np.linalg.norm(paused.nodes[1] - np.asarray(problem.initial))
    )  # one gradient from the start


@pytest.mark.parametrize(
    "algorithm", [async_sharing(0.05), fedasync(0.05), dpsgd(0.05)], ids=lambda a: a.name
)
@pytest.mark.parametrize(
    "faults",
    [
        Faults(away=((0, 2, 5), (2, 4, 9))),
        Faults(crash=((1, 3, 8),)),
        Faults(liars=0.3, attack="sign_flip", scale=0.5),
        Faults(liars=0.25, attack="noise", scale=0.1),
    ],
    ids=["away", "crash", "sign flip", "noise"],
)
def test_simulator_and_reference_agree_under_faults(quadratics, algorithm, faults):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    run = run_with(problem, constant(2), algorithm, faults, slots=20)

    found = reference(problem, run.timeline, algorithm, faults=faults)

    np.testing.assert_allclose(run.nodes, found.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, found.model, rtol=1e-9, atol=1e-12)


def test_what_liars_send_is_the_reversed_update_or_noise(quadratics):
    problem = quadratics(nodes=NODES)
    messages = jnp.concatenate(
        [jnp.arange(4.0 * problem.dim).reshape(4, -1), jnp.ones((4, 1))], axis=1
    )
    key = jax.random.key(0)

    flipped = Faults(liars=0.5, scale=2.0).corrupt(messages, problem.initial, key)
    noisy = Faults(liars=0.5, attack="noise", scale=3.0).corrupt(messages, problem.initial, key)

    first = np.asarray(problem.initial)
    np.testing.assert_allclose(
        flipped[:2, :-1], first - 2.0 * (np.asarray(messages[:2, :-1]) - first)
    )
    for sent in (flipped, noisy):
        np.testing.assert_array_equal(sent[2:], messages[2:])
        np.testing.assert_array_equal(
            sent[:, -1], messages[:, -1]
        )  # what is not the model is left alone
    assert np.abs(noisy[:2, :-1]).max() > 0.1


def test_fedavg_goes_on_when_a_node_returns_and_each_round_waits_for_it(quadratics):
    problem = quadratics(nodes=NODES)

    whole = simulate(problem, snapshot(2), fedavg(0.1), slots=30)
    broken = simulate(
        problem, snapshot(2), fedavg(0.1), slots=30, faults=Faults(away=((3, 4, 14),))
    )

    assert whole.last("rounds") == 10
    assert 5 <= broken.last("rounds") < whole.last("rounds")


def test_slow_nodes_keep_their_gradient_while_away(quadratics):
    problem = quadratics(nodes=2)
    faults = Faults(away=((0, 1, 4),))

    run = run_with(problem, ideal(), async_sharing(0.1), faults, slots=7, clock=Clock(1.0, (3, 1)))

    np.testing.assert_array_equal(np.flatnonzero(run.timeline.finished[:, 0]), [5])  # slots 0, 4, 5


def test_losses_repeat_what_a_server_waits_for(quadratics):
    problem = quadratics(nodes=NODES)
    sure = simulate(problem, snapshot(2), fedavg(0.1), slots=60)
    lossy = simulate(problem, Lossy(snapshot(2), 0.4), fedavg(0.1), slots=60)

    assert 0 < lossy.last("rounds") < sure.last("rounds")
    assert lossy.last("bits_unicast") / lossy.last("rounds") > 1.3 * sure.last(
        "bits_unicast"
    ) / sure.last("rounds")


@pytest.mark.parametrize("network", [constant(2), RadioNetwork()], ids=["constant", "radio"])
@pytest.mark.parametrize("algorithm", [fedavg(0.1), dpsgd(0.1)], ids=lambda a: a.name)
def test_a_method_that_needs_everyone_is_refused_when_one_leaves_for_good(
    quadratics, network, algorithm
):
    with pytest.raises(
        ValueError, match=f"{algorithm.name} assumes that every node answers in the end.*crashes"
    ):
        simulate(
            quadratics(nodes=NODES),
            network,
            algorithm,
            slots=3,
            faults=Faults(crash=((0, 1, None),)),
        )


@pytest.mark.parametrize(
    ("algorithm", "faults", "complaint"),
    [
        (fedavg(0.1), Faults(crash=((0, 1, 4),)), "fedavg assumes that no node starts anew"),
        (cga(0.1), Faults(crash=((0, 1, 4),)), "cga assumes that no node starts anew"),
        (adpsgd(0.1), Faults(crash=((0, 1, 4),)), "adpsgd assumes that no node starts anew"),
        (
            fedsa(0.1, M=4),
            Faults(crash=((0, 1, None),)),
            "fedsa waits for 4 of 4 nodes, and 1 of them crash",
        ),
        (
            fedap(0.1, m=4),
            Faults(crash=((0, 1, None),)),
            "fedap waits for 4 of 4 nodes, and 1 of them crash",
        ),
        (
            dpsgd(0.1, topology="schedule"),
            Faults(away=((0, 1, 4),)),
            "needs every node in every round",
        ),
    ],
    ids=["fedavg", "cga", "adpsgd", "fedsa", "fedap", "schedule"],
)
def test_faults_that_a_method_cannot_bear_are_refused(quadratics, algorithm, faults, complaint):
    with pytest.raises(ValueError, match=complaint):
        simulate(quadratics(nodes=NODES), ideal(), algorithm, slots=3, faults=faults)


@pytest.mark.parametrize(
    "algorithm", [fedsa(0.1), fedap(0.1), fedbuff(0.1), fedasync(0.1)], ids=lambda a: a.name
)
@pytest.mark.parametrize("back", [None, 9], ids=["gone", "restarted"])
def test_partial_methods_go_on_without_one_node_and_with_a_restarted_one(
    quadratics, algorithm, back
):
    problem = quadratics(nodes=NODES, heterogeneity=0.0, condition=2.0)
    network = pipelined(1, download_slots=0)
    faults = Faults(crash=((1, 5, back),))
    run = simulate(problem, network, algorithm, slots=450, faults=faults, recording=Recording(30))

    rounds = run.column("rounds")
    assert rounds[-1] > rounds[5] > rounds[1]  # after 450, 150 and 30 slots
    start = float(jnp.linalg.norm(problem.initial - problem.optimum))
    assert run.last("optimum_distance") < 0.05 * start


def test_who_was_away_does_not_hear_what_was_brought_meanwhile(quadratics):
    faults = Faults(away=((2, 3, 9),))
    run = run_with(quadratics(nodes=3), constant(1), async_sharing(0.1), faults, slots=12)
    late = run_with(quadratics(nodes=3), snapshot(8), async_sharing(0.1), faults, slots=24)

    assert (
        run.timeline.held[10:, 2, 0] >= np.arange(10, 12) - 1
    ).all()  # constant: something new comes in every slot
    held, sends = late.timeline.held, late.timeline.sends
    for t in range(1, 24):
        if (
            held[t, 2, 0] != held[t - 1, 2, 0]
        ):  # only what was sent in the slot before, and it was there
            assert sends[t - 1, 0]
            assert not 3 <= t - 1 < 9


def test_a_liar_of_a_method_that_sends_differences_sends_the_negative(quadratics):
    problem = quadratics(nodes=2)
    messages = jnp.full((2, problem.dim + 1), 0.1)
    key = jax.random.key(0)

    sent = Faults(liars=0.5).corrupt(messages, problem.initial, key, about_zero=True)

    assert fedbuff(0.1).declares.differences
    np.testing.assert_allclose(sent[0, :-1], -0.1)


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        (Faults(away=((4, 1, 2),)), "names node 4"),
        (Faults(away=((1, 5, 5),)), "cannot go away in slot 5 and be back in slot 5"),
        (Faults(liars=1.0), "liars is a share"),
        (Faults(liars=0.5, attack="bribe"), "no attack 'bribe'"),  # type: ignore[arg-type]
    ],
)
def test_faults_that_cannot_happen_are_refused(quadratics, faults, complaint):
    with pytest.raises(ValueError, match=complaint):
        simulate(quadratics(nodes=NODES), ideal(), async_sharing(0.1), slots=3, faults=faults)
