"""A node's decisions, driven by hand: no sleep, no thread, no socket, no file."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from folkman import async_sharing, ideal, make_problem, simulate
from folkman.engine.presence import Asleep
from folkman.problem import data
from folkman.radio.replay import replay
from folkman.radio.trace import PeerTimeline
from folkman.runtime import control, journal
from folkman.runtime.codec import Message, encode, sequence_of
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.owed import LEAST_PATIENCE_S
from folkman.runtime.core.own_beat import OwnBeat
from folkman.runtime.core.settings import DISK, Settings
from folkman.runtime.core.slots import EmulatedSlots
from folkman.runtime.disk import FolderDisk
from folkman.runtime.emulation import Emulation
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Node, Wire
from folkman.runtime.ways import way_of
from runtime.cores import RUN, Air, core_of, node_of

QUICK = Settings(slot_s=0.1, start_wait_s=5.0)


def three(settings=QUICK, **more):
    return Air([core_of(number, 3, settings, **more) for number in range(3)])


def bodies(air, number, kind) -> list[Any]:
    """Return what a node said of one kind, with its time and the neighbour."""
    said = [(at_s, e) for at_s, e in air.effects[number] if isinstance(e, events.Tell)]
    opened = [(at_s, e.peer, control.open_sealed(e.data, RUN).body) for at_s, e in said]
    return [each for each in opened if isinstance(each[2], kind)]


# -- life ------------------------------------------------------------------------------------------


def test_nothing_is_said_before_the_number_of_a_life_is_on_disk():
    core = core_of(0, 2)
    effects = core.step(0.0, events.Start(None, 0))
    effects += core.step(0.0, events.Linked(1))
    (save,) = [each for each in effects if isinstance(each, events.Save)]
    assert save.life == 1
    assert not any(isinstance(each, events.Tell | events.Publish) for each in effects)
    assert core.step(0.1, events.SaveFailed(save.ticket, "full"))
    assert core.next_s() == pytest.approx(1.1)  # tried again, and again nothing is said
    again = [each for each in core.step(1.1, events.Tick()) if isinstance(each, events.Save)]
    assert [each.life for each in again] == [1]
    spoken = core.step(1.2, events.Saved(again[0].ticket))
    assert any(isinstance(each, events.Tell) for each in spoken)


def test_what_came_before_a_life_had_begun_is_answered_when_it_begins():
    """Else a sender that was quicker waits for the limit of a period, and is silent meanwhile."""
    cores = [core_of(number, 2, QUICK) for number in range(2)]
    air = Air(cores, save_s=0.5)  # slow disks: node 1 is heard before its life is noted
    air.start()
    first = air.cores[0]
    air.run(0.2)
    (save,) = [e for _, e in air.effects[0] if isinstance(e, events.Save)]
    air.step(0, events.Saved(save.ticket))  # the disk of node 0 is quicker
    air.run(0.4)
    assert first.hands.counts["sent"] == 1
    assert air.cores[1].hands.counts["taken"] == 1
    assert bodies(air, 1, control.Ack) == []

    air.run(1.0)

    at_s, peer, body = bodies(air, 1, control.Ack)[0]
    assert (at_s, peer) == (0.5, 0)
    assert body.sequence == sequence_of(air.sent(0)[0].data)
    assert first.hands.counts["sent"] >= 3


def test_of_answers_that_wait_for_a_life_the_newest_are_given():
    core = core_of(0, 3)
    core.step(0.0, events.Start(None, 0))
    for number in (7, 9, 8):
        core.hands.tell(1, control.Ack(number))
    core.hands.tell(1, control.Refusal(6, "far"))
    core.hands.tell(2, control.Ack(5))
    core.hands.owe_no_answer(2)

    effects = core.step(0.1, events.Saved(1))

    tells = [each for each in effects if isinstance(each, events.Tell)]
    said = [(each.peer, control.open_sealed(each.data, RUN).body) for each in tells]
    answers = [each for each in said if isinstance(each[1], control.Ack | control.Refusal)]
    assert answers == [(1, control.Ack(9)), (1, control.Refusal(6, "far"))]


def test_an_answer_on_a_link_that_is_not_noticed_yet_is_given_again():
    """As with zenoh, where one side may hear before it knows that it is heard."""
    core = core_of(0, 2)
    core.step(0.0, events.Start(None, 0))
    core.step(0.1, events.Saved(1))
    message = encode(Message(RUN, 1, (1 << 32) + 1, 1, np.ones(4, np.float32)))

    def acknowledged(effects):
        tells = [each for each in effects if isinstance(each, events.Tell)]
        said = [control.open_sealed(each.data, RUN).body for each in tells]
        return [each.sequence for each in said if isinstance(each, control.Ack)]

    first = (1 << 32) + 1
    assert acknowledged(core.step(0.2, events.Received(1, message))) == [first]
    assert acknowledged(core.step(0.3, events.Linked(1))) == [first]
    core.step(0.4, events.Unlinked(1))
    assert acknowledged(core.step(0.5, events.Linked(1))) == []  # it was heard, or is sent again


@pytest.mark.parametrize("late_s", [(0.0, 0.0, 0.0), (0.0, 1.0, 3.0), (2.0, 0.0, 0.1)])
@pytest.mark.parametrize("save_s", [0.001, 0.4])
def test_where_nothing_goes_wrong_nobody_waits_out_a_limit(late_s, save_s):
    """Limits far beyond the run: whoever waits for one is seen at once."""
    settings = QUICK._replace(
        steps=10, start_wait_s=1e3, linger_s=1e3, period_timeout_s=1e3, retry_s=1e3
    )
    air = Air([core_of(number, 3, settings) for number in range(3)], save_s=save_s)
    for number, begins_s in enumerate(late_s):
        air.later(begins_s, number, events.Start(None, 0))
    for one, other in itertools.permutations(range(3), 2):
        air.later(max(late_s[one], late_s[other]) + 0.05 * one, one, events.Linked(other))
    air.run(12.0)

    assert air.codes == {0: 0, 1: 0, 2: 0}
    assert all(core.hands.counts["sent"] >= 5 for core in air.cores.values())


def test_nobody_waits_for_a_neighbour_that_is_no_member():
    settings = QUICK._replace(steps=5, start_wait_s=1e3, linger_s=1e3)
    air = Air([core_of(number, 3, settings) for number in range(3)])
    air.start(0, 1)
    for number in (0, 1):
        air.step(number, events.MembersChanged(frozenset({0, 1})))
    air.run(10.0)

    assert air.codes == {0: 0, 1: 0}


def test_who_is_no_member_need_not_be_done_for_others_to_end():
    """A server, too, ends when those that take part are done."""
    core = core_of(0, 3)
    core.step(0.0, events.Start(None, 0))
    core.hearing.done.add(1)
    assert not core.everyone_done()

    core.step(0.1, events.MembersChanged(frozenset({0, 1})))

    assert core.everyone_done()


def test_a_node_whose_list_has_nobody_waits_all_the_same():
    """Its own time of day may be wrong: the others come back when it is right."""
    air = three(QUICK._replace(steps=5))
    air.start()
    for number in range(3):
        air.step(number, events.MembersChanged(frozenset()))
    air.run(4.9)

    assert all(core.node.steps == 0 for core in air.cores.values())


def test_nodes_learn_hear_each_other_and_end_with_a_result():
    air = three(QUICK._replace(steps=30), kind=Node)
    air.start()
    air.run(60.0)

    assert air.codes == {0: 0, 1: 0, 2: 0}
    for number, core in air.cores.items():
        assert core.node.steps == 30
        assert air.disks[number].final is not None
        assert (core.node.mailbox.sequence[[j for j in range(3) if j != number]] > 0).all()
        assert core.next_s() == math.inf


def test_the_same_events_have_the_same_effects():
    def lived():
        air = three(QUICK._replace(steps=20), kind=Node)
        air.start()
        air.run(40.0)
        return {n: [(at_s, repr(e)) for at_s, e in done] for n, done in air.effects.items()}

    assert lived() == lived()


def test_a_state_that_is_due_is_saved_before_the_rest_after_a_slot():
    """What a kill costs is then what came since, and not the gradient before the rest as well."""
    core = core_of(0, 2, Settings(slot_s=1.0, save_every_s=2.0, start_wait_s=0.0))
    air, lags = Air([core]), []
    air.start()

    for second in range(1, 21):
        air.run(second + 0.5)
        state = air.disks[0].state
        lags.append(core.node.steps - (0 if state is None else int(state["counters"][1])))

    assert core.node.steps > 15
    assert set(lags[4:]) == {0, 1}


@pytest.mark.parametrize("on_a_channel", [False, True])
def test_a_long_rest_costs_a_disk_one_state(on_a_channel):
    """A node that rests for a minute hears others all the time, and flash wears with each write."""
    settings = Settings(slot_s=60.0, save_every_s=2.0, start_wait_s=0.0)
    made = emulated if on_a_channel else core_of
    air = Air([made(number, 2, settings) for number in range(2)])
    air.start()

    air.run(600.0)

    for number, core in air.cores.items():
        saves = [e.state for _, e in air.effects[number] if isinstance(e, events.Save)]
        slots = [int(state["counters"][0]) for state in saves if state is not None]
        assert core.node.steps >= 9
        assert len(slots) >= 9
        assert len(set(slots)) == len(slots)


def test_a_node_that_is_asked_to_stop_saves_first_and_waits_for_no_gradient_for_ever():
    air = three()
    air.start()
    air.run(3.0)
    air.step(0, events.Asked("SIGTERM"))
    air.run(4.0)
    assert air.codes == {0: 0}
    assert air.disks[0].state["counters"][1] == air.cores[0].node.steps

    core = core_of(0, 2, QUICK._replace(start_wait_s=0.0))
    core.step(0.0, events.Start(None, 0))
    effects = core.step(0.0, events.Saved(1))
    assert any(isinstance(each, events.Compute) for each in effects)  # it never comes back
    core.step(1.0, events.Asked("SIGTERM"))
    (end,) = [e for e in core.step(core.next_s(), events.Tick()) if isinstance(e, events.Finish)]
    assert end.code == 0


def test_a_result_that_the_disk_refuses_costs_the_exit_code_and_keeps_nobody_waiting():
    air = three(QUICK._replace(steps=5, linger_s=2.0), kind=Node)
    air.start()
    air.run(0.3)
    air.disks[1].full = True
    air.run(30.0)

    assert air.codes == {0: 0, 1: DISK, 2: 0}


# -- members that keep to the format ---------------------------------------------------------------


def rate(air, number, since_s):
    """Return the messages of a node to one neighbour in a second."""
    to = [e for e in air.sent(number, since_s) if e.peer == (number + 1) % 2]
    return len(to) / (air.now_s - since_s)


def test_a_member_that_never_acknowledges_slows_nobody_down_for_long():
    """It is sent to all the same, and heard."""
    air = three()
    air.drops = {(events.Tell, 2, 0), (events.Tell, 2, 1)}  # node 2 says nothing, ever
    air.start()
    air.run(10.0)
    since_s = air.now_s
    air.run(20.0)

    assert rate(air, 0, since_s) == pytest.approx(10.0, rel=0.1)  # one message a slot
    assert air.health(0).facts["unheard"] == ["node-2"]
    assert len([e for e in air.sent(0, since_s) if e.peer == 2]) > 50
    air.drops = set()
    air.run(22.0)
    assert air.health(0).facts["unheard"] == []  # it has acknowledged


def test_who_acknowledges_only_to_be_waited_for_again_is_waited_for_less_and_less():
    """A flapping member acknowledges until it is waited for, and then falls silent again."""
    air = three()
    air.start()

    def flap(core, until_s):
        while air.now_s < until_s:
            owed = core.sending.owed
            silent = owed.is_waited_for(2)
            air.drops = {(events.Tell, 2, 0), (events.Tell, 2, 1)} if silent else set()
            air.run(air.now_s + 0.05)

    flap(air.cores[0], 40.0)
    since_s = air.now_s
    flap(air.cores[0], 60.0)

    assert rate(air, 0, since_s) > 7.0


def test_who_acknowledges_late_sets_the_pace_of_nobody_else():
    """A multiple of the median latency is waited for, however slow one link is or feigns to be."""
    cores = [core_of(number, 4, QUICK) for number in range(4)]
    air = Air(cores)
    slow = air.later

    def later(after_s, number, event):
        of_3 = isinstance(event, events.Told) and event.peer == 3
        slow(after_s + (8.0 if of_3 else 0.0), number, event)

    air.later = later
    air.start()
    air.run(20.0)
    since_s = air.now_s
    air.run(30.0)

    assert rate(air, 0, since_s) > 9.0
    assert cores[0].sending.owed.patience_s() == LEAST_PATIENCE_S


def test_a_message_that_cannot_be_taken_is_answered_with_a_reason():
    core = core_of(0, 2)
    air = Air({0: core})
    air.start()
    air.step(0, events.Linked(1))
    air.run(1.0)
    wild = Message(RUN, 1, (1 << 32) + 1, 0, np.full(4, 1e9, np.float32))

    air.step(0, events.Received(1, encode(wild)))

    assert [body for *_, body in bodies(air, 0, control.Refusal)] == [
        control.Refusal(wild.sequence, "absurd")
    ]
    assert not bodies(air, 0, control.Ack)


def test_a_sender_whose_message_was_refused_goes_on_and_says_so():
    core = core_of(0, 2)
    air = Air({0: core})
    voice = control.Voice(RUN, 1, 1, None, None)
    air.start()
    air.step(0, events.Linked(1))
    air.run(0.5)
    (first, *_) = air.sent(0)
    refusal = control.Refusal(sequence_of(first.data), "absurd")

    air.step(0, events.Told(1, voice.sealed(refusal)))
    air.run(1.0)

    assert len(air.sent(0)) > 1
    assert air.health(0).facts["refused_by"] == {"node-1": "absurd"}


def test_an_answer_to_what_was_never_sent_is_refused():
    core = core_of(0, 2)
    air = Air({0: core})
    voice = control.Voice(RUN, 1, 1, None, None)
    air.start()
    air.step(0, events.Linked(1))
    air.run(0.5)

    air.step(0, events.Told(1, voice.sealed(control.Ack(2**40))))

    assert core.node.mailbox.refused["control_range"] == 1
    assert core.sending.holds(1) == 0


# -- lives -----------------------------------------------------------------------------------------


def restarted(air, number, disk):
    """Let a node begin again with what a disk has, all links anew."""
    old = air.cores[number]
    air.cores[number] = core_of(number, len(air.cores), old.settings)
    air.disks[number] = disk
    others = [j for j in air.cores if j != number]
    for peer in others:
        air.step(peer, events.Unlinked(number))
    air.step(number, events.Start(disk.state, disk.life))
    for peer in others:
        air.step(peer, events.Linked(number))
        air.step(number, events.Linked(peer))
    return air.cores[number]


@pytest.mark.parametrize("others_too", [False, True])
def test_a_node_whose_disk_was_lost_is_told_so_and_is_heard_again(others_too):
    """Also where its neighbours have begun again since, and know its messages from their disks."""
    air = three(QUICK._replace(save_every_s=0.2))
    air.start()
    air.run(3.0)
    for _ in range(2):
        restarted(air, 2, air.disks[2])
        air.run(air.now_s + 3.0)
    assert air.cores[2].life.number == 3
    lost = type(air.disks[2])()
    if others_too:
        restarted(air, 0, air.disks[0])
        restarted(air, 1, air.disks[1])
    core = restarted(air, 2, lost)
    since_s = air.now_s
    air.run(since_s + 5.0)

    assert core.life.number == 4
    assert lost.life == 4  # noted before it was spoken under
    for number in (0, 1):
        box = air.cores[number].node.mailbox
        assert box.sequence[2] >> 32 == 4
        assert box.slot[2] > 20
    assert any("was lost" in each["text"] for each in air.logged(2, "life"))


def test_a_neighbour_that_lies_about_lives_is_believed_once_and_not_beyond_a_bound():
    core = core_of(0, 3)
    air = Air({0: core})
    air.start()
    voices = {peer: control.Voice(RUN, peer, 1, None, None) for peer in (1, 2)}
    for peer in voices:
        air.step(0, events.Linked(peer))
    air.run(1.0)

    def claim(peer, life):
        air.step(0, events.Told(peer, voices[peer].sealed(control.Known(life))))
        air.run(air.now_s + 1.0)
        return core.life.number

    assert claim(1, 2**31) == 1
    assert claim(1, 1000) == 1001
    assert claim(1, 2000) == 1001
    assert claim(2, 2**30 - 1) == 2**30
    assert claim(2, 2**30) == 2**30


# -- members ---------------------------------------------------------------------------------------


def test_what_a_member_left_is_forgotten_when_it_is_one_no_more():
    air = three()
    air.start()
    air.run(2.0)
    core, everyone = air.cores[0], frozenset({1, 2})
    air.step(0, events.MembersChanged(everyone))
    box = core.node.mailbox
    held, newest = box.sequence[2], box.newest[2]
    assert held > 0

    air.step(0, events.MembersChanged(frozenset({1})))

    assert box.sequence[2] == 0
    np.testing.assert_array_equal(box.payload[2], np.zeros(4))
    notes = air.sent(0, air.now_s, events.Note)
    assert [(n.kind, n.sequence) for n in notes] == [(journal.FORGOT, (2,))]
    assert [e.peer for e in air.sent(0, air.now_s, events.Drop)] == [2]
    air.drops = {(events.Publish, 2, 0)}
    air.run(4.0)
    wakes = [e for e in air.sent(0, 2.2, events.Note) if e.kind == journal.WAKE]
    assert {e.sequence[2] for e in wakes} == {0}
    assert not [e for e in air.sent(0, 2.2) if e.peer == 2]  # nor is it sent to
    old = encode(Message(RUN, 2, int(newest), 1, np.ones(4, np.float32)))
    assert not core.node.receive(old)  # nothing older than what was held is ever taken again
    assert core.node.receive(encode(Message(RUN, 2, int(newest) + 1, 1, np.ones(4, np.float32))))


def test_a_node_that_begins_again_forgets_who_was_revoked_meanwhile():
    air = three(QUICK._replace(save_every_s=0.2))
    air.start()
    air.run(3.0)
    core = restarted(air, 0, air.disks[0])
    assert core.node.mailbox.sequence[2] > 0

    air.step(0, events.MembersChanged(frozenset({1})))

    assert core.node.mailbox.sequence[2] == 0


# -- the clock of slots, and a node that does nothing -------------------------------------------------


def emulated(number, nodes, settings):
    air = Emulation(ideal().peers(), nodes, number, seed=0, message_bits=128)
    return Core(node_of(number, nodes), settings, EmulatedSlots(air))


def test_one_clock_that_is_far_ahead_moves_nobody_and_the_learner_goes_on():
    cores = {number: emulated(number, 4, QUICK) for number in range(3)}
    air = Air(cores)
    air.start()
    liar = control.Voice(RUN, 3, 1, None, None)
    for number in cores:
        air.step(number, events.Linked(3))
    air.run(1.0)
    for _ in range(20):
        for number in cores:
            hello = control.Hello(80_000.0, 1, 1)
            air.step(number, events.Told(3, liar.sealed(hello)))
        air.run(air.now_s + 0.05)

    assert all(core.node.slot <= 10 * air.now_s + 1 for core in cores.values())
    assert all(core.node.slot >= 10 * air.now_s - 2 for core in cores.values())


class HeldUp(Air):
    """Two gradients of node 1 take seven slots more."""

    def later(self, after_s, number, event):
        slow = number == 1 and isinstance(event, events.Computed) and event.ticket in (5, 10)
        super().later(after_s + (0.7 if slow else 0.0), number, event)


def test_a_node_that_is_late_lives_its_last_slots_while_others_are_done():
    """Whoever is done says no time of slots: else a late one waits for those that wait for it."""
    settings = QUICK._replace(steps=16, linger_s=20.0)
    air = HeldUp({number: emulated(number, 3, settings) for number in range(3)})
    air.start()
    air.run(2.0)
    assert [air.cores[n].node.steps for n in (0, 2)] == [16, 16]
    assert air.cores[1].node.steps < 10

    air.run(6.0)

    assert air.cores[1].node.steps == 16
    assert air.codes == {0: 0, 1: 0, 2: 0}


def test_a_node_that_was_away_catches_up_with_the_slots_of_the_others():
    cores = {number: emulated(number, 3, QUICK) for number in range(3)}
    air = Air(cores)
    air.start()
    air.run(100.0)
    air.cores[2] = emulated(2, 3, QUICK)
    air.step(2, events.Start(None, 1))
    for peer in (0, 1):
        air.step(2, events.Linked(peer))
    air.run(105.0)

    slots = [core.node.slot for core in air.cores.values()]
    assert max(slots) - min(slots) <= 1
    assert air.cores[2].node.steps < 100  # it has skipped 1,000


def test_a_node_whose_slots_have_stopped_is_not_well():
    core = core_of(0, 2, QUICK._replace(start_wait_s=0.0))
    core.step(0.0, events.Start(None, 0))
    core.step(0.0, events.Linked(1))
    core.step(0.0, events.Saved(1))  # a gradient is under way, and never ends
    found = {}
    for now_s in np.arange(0.5, 40.0, 0.5):
        for effect in core.step(float(now_s), events.Tick()):
            if isinstance(effect, events.Health):
                found[now_s] = effect

    assert found[5.0].ok
    assert not found[39.0].ok
    assert found[39.0].facts["wrong"] == "no slot was lived for 39 s"


def test_a_node_that_nobody_links_to_says_so_once_and_is_not_well():
    core = core_of(0, 2, QUICK._replace(start_wait_s=1.0))
    air = Air({0: core})
    air.start()
    text = "certificate verify failed: certificate is not yet valid"
    air.step(0, events.Refused("handshake", text))
    air.run(20.0)
    assert air.health(0).ok
    air.run(60.0)

    health = air.health(0)
    assert not health.ok
    assert "the clock of this machine" in health.facts["wrong"]
    assert text in health.facts["wrong"]
    assert len(air.logged(0, "not well")) == 1
    air.step(0, events.Linked(1))
    air.run(61.0)
    assert air.health(0).ok


def test_what_is_done_depends_on_no_order_of_hashes():
    """Neighbours are told in the order of their numbers, however links came up."""
    for order in itertools.permutations((1, 2, 3)):
        core = core_of(0, 4)
        core.step(0.0, events.Start(None, 0))
        for peer in order:
            core.step(0.0, events.Linked(peer))
        effects = core.step(0.0, events.Saved(1))
        hellos = [e.peer for e in effects if isinstance(e, events.Tell)][-3:]
        assert hellos == [1, 2, 3]


def test_a_run_in_which_a_member_was_forgotten_is_replayed_to_the_same_parameters(tmp_path):
    """After it was revoked its first message is held again, by the node and by the simulator."""
    samples = data.quadratic(nodes=3, dim=4, heterogeneity=1.0)
    assert samples.group is not None
    parts = [np.flatnonzero(samples.group == node) for node in range(3)]
    problem, algorithm = make_problem(samples, "quadratic", parts), async_sharing(0.1)
    shares = np.asarray(problem.share)
    nodes = [Node(i, problem.of_node(i), algorithm, shares, seed=1) for i in range(3)]
    air = Air([Core(node, QUICK._replace(steps=25), OwnBeat()) for node in nodes])
    air.start()
    air.run(1.0)
    assert nodes[0].mailbox.sequence[2] > 0
    air.step(0, events.MembersChanged(frozenset({1})))
    air.drops = {(events.Publish, 2, 0)}
    air.run(60.0)
    logs = {}
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        written = journal.Journal(FolderDisk(tmp_path / str(number)), number, 3, life=1)
        for note in air.sent(number, kind=events.Note):
            written.note(note.kind, note.slot, note.sequence, computed=note.computed)
        written.close()
        logs[number] = journal.read(tmp_path / str(number) / "timeline.bin")
    told = way_of(algorithm).causal(logs, 3, paced=False)
    assert isinstance(told.timeline, PeerTimeline)

    awake = told.awake
    run = simulate(
        problem, replay(told.timeline), algorithm, slots=len(awake), seed=1, faults=Asleep(awake)
    )

    assert (told.timeline.held[-1, 0, 2], told.timeline.held[-1, 1, 2] > 0) == (0, True)
    ends = np.stack([node.params() for node in nodes])
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-5, atol=1e-5)


# -- poison within the limits --------------------------------------------------------------------


def poisoned(farthest):
    """Return the loss of node 0 after 4 s in which member 2 sends 9e5 in every entry."""
    wire = Wire(RUN, checks=Checks(farthest=farthest))
    air = Air({0: core_of(0, 3, QUICK, kind=Node, wire=wire), 1: core_of(1, 3, QUICK, kind=Node)})
    air.start()
    for number in (0, 1):
        air.step(number, events.Linked(2))
    air.run(2.0)
    wild = Message(RUN, 2, (1 << 32) + 1, 20, np.full(4, 9e5, np.float32))
    air.step(0, events.Received(2, encode(wild)))
    air.run(4.0)
    return air, air.cores[0].node.loss


def test_poison_within_the_limits_is_refused_by_its_distance():
    air, loss = poisoned(farthest=10.0)
    assert loss < 10.0
    assert air.cores[0].node.mailbox.refused["far"] == 1
    assert bodies(air, 0, control.Refusal)[0][2].reason == "far"
    assert air.health(0).facts["reach_share"] < 0.1  # of what honest neighbours may be
    assert poisoned(farthest=0.0)[1] > 1e6  # what it would have done


def test_a_node_that_begins_when_all_others_are_far_along_takes_them_in():
    """One of them could be lying; when most are as far away they are right."""
    node = node_of(0, 5, kind=Node)
    far = [Message(RUN, peer, 7, 10**6, np.full(4, 1e5, np.float32)) for peer in (1, 2, 3, 4)]
    assert not node.receive(encode(far[0]))
    assert not node.receive(encode(far[1]))
    assert node.receive(encode(far[2]))
    assert node.receive(encode(far[3]))
    again = [each._replace(sequence=8) for each in far]
    assert all(node.receive(encode(each)) for each in again)


def test_a_node_that_is_asked_to_stop_before_its_life_is_noted_stops():
    core = core_of(0, 2, QUICK._replace(start_wait_s=0.0))
    core.step(0.0, events.Start(None, 0))
    core.step(0.0, events.Asked("SIGTERM"))

    effects = core.step(0.1, events.Saved(1))

    assert not any(isinstance(each, events.Compute) for each in effects)
    assert any(isinstance(each, events.Finish) for each in core.step(0.2, events.Saved(2)))


def test_on_settled_links_a_node_says_little_and_a_new_link_is_greeted_often():
    """A word costs each receiver a signature: hello every 2 s, R_i when it changes, links every 8 s."""
    cores = [core_of(n, 3, Settings(slot_s=0.5), OwnBeat()) for n in range(3)]
    air = Air(cores, delay_s=0.01)
    air.start()
    air.run(30.0)

    def said(kind, since_s):
        words = [control.open_sealed(e.data, RUN).body for e in air.sent(0, since_s, events.Tell)]
        return sum(isinstance(body, kind) for body in words) / 2  # neighbours

    settled = {kind: said(kind, 10.0) for kind in (control.Hello, control.Period, control.Quality)}
    assert 9 <= settled[control.Hello] <= 11  # in 20 s
    assert settled[control.Period] <= 6
    assert settled[control.Quality] <= 3
    air.step(0, events.Unlinked(1))
    air.step(0, events.Linked(1))
    air.run(34.0)
    assert said(control.Hello, 30.0) >= 8
