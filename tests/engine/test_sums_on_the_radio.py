"""Sums on the index schedule of the radio: three engines, one answer."""

import numpy as np
import pytest

from folkman import Clock, Lossy, RadioNetwork, Recording, async_sharing, replay, simulate
from folkman import reference as run_reference
from folkman.faults import NO_FAULTS, Faults
from folkman.packing import fixed
from folkman.radio.transfers import own_past
from folkman.runtime.emulation import Emulation

SLOT_S = 2e-5  # of one message of 30 numbers, some slots
AIR = RadioNetwork(schedule="index", message="sum", slot_s=SLOT_S)


@pytest.mark.parametrize(
    ("network", "faults", "compute"),
    [
        (AIR, NO_FAULTS, 1),
        (AIR, NO_FAULTS, (1, 2, 5, 1)),
        (Lossy(AIR, 0.3), NO_FAULTS, 1),
        (AIR, Faults(away=((1, 4, 12), (3, 8, 9))), 1),
    ],
    ids=["plain", "slow nodes", "losses", "away"],
)
def test_sums_end_where_copies_end(quadratics, network, faults, compute):
    problem, slots, method = quadratics(nodes=4, dim=30, heterogeneity=1.0), 40, async_sharing(0.05)
    clock, recording = Clock(SLOT_S, compute), Recording(20, timeline=True)

    run = simulate(
        problem, network, method, slots=slots, clock=clock, recording=recording, faults=faults
    )
    packing = fixed(16)
    sums = run_reference(
        problem, run.timeline, method, faults=faults, packing=packing, carry="sums"
    )
    again = simulate(
        problem,
        replay(run.timeline, bits_per_parameter=16, message="sum"),
        method,
        slots=slots,
        clock=Clock(compute_slots=compute),
        faults=faults,
    )

    held = run.timeline.held
    assert (held[-1] > 0).sum() > 6  # something was sent
    np.testing.assert_allclose(sums.nodes, run.nodes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.nodes, run.nodes, rtol=1e-12, atol=1e-12)
    most, _ = own_past(run.timeline)
    assert (most <= 5).all()  # I + 1


@pytest.mark.parametrize("message", ["copy", "forward", "sum"])
def test_the_band_is_not_spent_on_a_node_that_is_away(quadratics, message):
    slot_s = 10 * SLOT_S
    air = RadioNetwork(schedule="index", message=message, slot_s=slot_s)

    run = simulate(
        quadratics(nodes=2, dim=30, heterogeneity=1.0),
        air,
        async_sharing(0.05),
        slots=120,
        clock=Clock(slot_s),
        recording=Recording(20, timeline=True),
        faults=Faults(away=((0, 30, 60),)),
    )

    held, sends = run.timeline.held, run.timeline.sends
    assert sends[:30, 1].any()
    assert not sends[31:59].any()  # nobody is there to hear the other
    assert sends[60:, 1].any()
    assert held[-1, 0, 1] > 60


def test_the_view_of_who_holds_what_is_no_air_for_sums():
    with pytest.raises(ValueError, match="which this view of the air does not tell"):
        Emulation(AIR.peers(), 4, 0, seed=0, message_bits=100)
