"""Two signed contents under one number exclude their signer, for good; an honest node never is."""

import io
import itertools
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from folkman.arrays import jnp
from folkman.runtime import codec, control, fresh_codec
from folkman.runtime.codec import CodecError, EquivocationError, Message
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.fresh_beat import FreshBeat
from folkman.runtime.core.settings import Settings
from folkman.runtime.drive import Drive, Home
from folkman.runtime.fresh_node import ForwardNode
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Wire
from folkman.runtime.telemetry import Logger
from runtime.cores import RUN, Air, Disk, Idle, node_of

NODES, LIAR = 4, 3
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([k]) * 32) for k in range(NODES)]


def verify(number, content, signature):
    try:
        KEYS[number].public_key().verify(signature, content)
    except InvalidSignature:
        return False
    return True


def quick_sign(number):
    """Sign by a keyed digest, where many messages are signed and none is forged."""
    return lambda content: blake2b(content, key=bytes([number + 1])).digest()


def quick_verify(number, content, signature):
    return quick_sign(number)(content) == signature


class Passing(Idle, ForwardNode):
    """Passes copies on, and learns nothing."""


def core_of(number, sign=None, check=verify, kind: Any = Passing):
    wire = Wire(RUN, sign or KEYS[number].sign, Checks(check)) if check else Wire(RUN)
    node = node_of(number, NODES, wire=wire, kind=kind)
    settings = Settings(slot_s=0.1)
    return Core(node, settings, FreshBeat(node, settings.period_timeout_s), verify=check)


def quick_core(number):
    """Return a core that learns, so that no two lives of it send the same."""
    return core_of(number, quick_sign(number), quick_verify, ForwardNode)


class Band(Air):
    """A band on which node 3 tells everyone its own parameters otherwise, each time signed."""

    draws = itertools.count(1000, 100_000)
    lies = True
    signed = True

    def start(self, *numbers):
        for number in numbers or self.cores:
            disk = self.disks[number]
            self.step(number, events.Start(disk.state, disk.life, draw=next(self.draws)))
        for one in numbers or self.cores:
            for other in self.cores:
                if other != one:
                    self.later(0.0, one, events.Linked(other))
                    self.later(0.0, other, events.Linked(one))

    def _do(self, number, core, effect):
        if self.lies and number == LIAR and isinstance(effect, events.Publish):
            effect = effect._replace(data=told_otherwise(effect, KEYS[LIAR].sign, self.signed))
        super()._do(number, core, effect)

    def begin_again(self, number):
        """Start a node anew with what its disk has."""
        for other in self.cores:
            if other != number:
                self.later(0.0, other, events.Unlinked(number))
        self.cores[number] = quick_core(number)
        self.start(number)


def told_otherwise(effect, sign, signed):
    """Return a cover of the liar with its own copy changed for this receiver."""
    cover = fresh_codec.decode(effect.data, RUN, 4, NODES)
    if codec.sender_of(cover.inner) != LIAR:
        return effect.data
    message = codec.decode(cover.inner, RUN, 4)
    other = message._replace(params=message.params + np.float32(effect.peer))
    inner = codec.encode(other, sign if signed else None)
    return fresh_codec.encode(cover._replace(inner=inner), sign if signed else None)


@pytest.fixture(scope="module")
def lied() -> Any:
    """A band that has run with a liar until everyone has had time to find out."""
    air = Band([core_of(number) for number in range(NODES)])
    air.start()
    air.run(3.0)
    return air


HONEST = [number for number in range(NODES) if number != LIAR]


@pytest.mark.parametrize("number", HONEST)
def test_who_signs_two_contents_under_one_number_is_excluded_by_all_and_no_other_is(lied, number):
    core = lied.cores[number]

    assert set(core.node.excluded) == {LIAR}
    assert LIAR not in core.there()
    assert core.node.mailbox.sequence[LIAR] == 0  # its copy is forgotten
    assert LIAR not in core.node.letters
    facts = lied.health(number).facts
    assert facts["excluded"] == [f"node-{LIAR}"]
    assert facts["counts"]["excluded"] == 1
    assert [line["peer"] for line in lied.logged(number, "excluded")] == [f"node-{LIAR}"]
    assert facts["refused"]["excluded"] + facts["refused"]["control_excluded"] > 1


def test_the_honest_go_on_hearing_each_other(lied):
    before = {n: lied.cores[n].node.mailbox.sequence.copy() for n in HONEST}
    lied.run(lied.now_s + 1.0)
    for n, other in itertools.permutations(HONEST, 2):
        assert lied.cores[n].node.mailbox.sequence[other] > before[n][other]


def test_proof_is_whole_checked_and_kept_over_a_restart(lied):
    first, second = lied.cores[0].node.excluded[LIAR]
    one, other = (codec.decode(data, RUN, 4, verify) for data in (first, second))
    assert (one.node, one.sequence) == (other.node, other.sequence)
    assert not np.array_equal(one.params, other.params)

    again = core_of(0)
    again.step(lied.now_s, events.Start(lied.disks[0].state, lied.disks[0].life))

    assert again.node.excluded == {LIAR: (first, second)}


def test_proof_is_passed_on_to_those_who_have_not_seen_both(lied):
    first, second = lied.cores[0].node.excluded[LIAR]
    core = core_of(1)
    core.step(0.0, events.Start(None, 0))
    core.step(0.0, events.Saved(1))
    for peer in (0, 2, LIAR):
        core.step(0.0, events.Linked(peer))
    sealed = control.Voice(RUN, 0, 1, KEYS[0].sign, None).sealed(control.Proof(first, second))

    effects: Any = core.step(0.1, events.Told(0, sealed))

    assert set(core.node.excluded) == {LIAR}
    told = [e.peer for e in effects if isinstance(e, events.Tell)]
    assert told == [0, 2]
    again = control.Voice(RUN, 2, 1, KEYS[2].sign, None).sealed(control.Proof(second, first))
    assert not [e for e in core.step(0.2, events.Told(2, again)) if isinstance(e, events.Tell)]


def of(number, sequence, value, signer=None):
    message = Message(RUN, number, sequence, 1, np.full(4, value, np.float32))
    return codec.encode(message, KEYS[number if signer is None else signer].sign)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(of(2, 7, 1.0), of(2, 7, 1.0), id="one content"),
        pytest.param(of(2, 7, 1.0), of(2, 8, 2.0), id="two numbers"),
        pytest.param(of(2, 7, 1.0), of(0, 7, 2.0), id="two nodes"),
        pytest.param(of(2, 7, 1.0), of(2, 7, 2.0, signer=LIAR), id="signed by the liar"),
        pytest.param(of(1, 7, 1.0), of(1, 7, 2.0), id="of the one that hears it"),
        pytest.param(b"", b"", id="nothing"),
        pytest.param(bytes(500), of(2, 7, 2.0), id="garbage"),
    ],
)
def test_what_proves_nothing_excludes_nobody_and_is_counted(first, second):
    core = core_of(1)
    core.step(0.0, events.Start(None, 0))
    core.step(0.0, events.Saved(1))
    core.step(0.0, events.Linked(LIAR))
    sealed = control.Voice(RUN, LIAR, 1, KEYS[LIAR].sign, None)

    core.step(0.1, events.Told(LIAR, sealed.sealed(control.Proof(first, second))))

    assert not core.node.excluded
    assert core.node.mailbox.refused == {"control_proof": 1}


def test_honest_nodes_that_are_killed_or_lose_their_disks_are_never_excluded():
    air = Band([quick_core(number) for number in range(NODES)])
    air.lies = False
    air.start()
    for k in range(12):
        air.run(air.now_s + 0.35 + 0.1 * (k % 3))
        number = k % NODES
        deaf = {(events.Tell, other, number) for other in air.cores}
        air.drops = deaf if k % 4 < 3 else set()  # nobody can tell it of its lives
        if k % 4:
            air.disks[number] = Disk()
        air.begin_again(number)
    air.drops = set()
    air.run(air.now_s + 2.0)

    for core in air.cores.values():
        assert not core.node.excluded
        assert core.node.mailbox.refused["equivocation"] == 0
    assert any(core.life.number > 2 for core in air.cores.values())


def test_without_signatures_nothing_is_proven_and_nobody_excluded():
    air = Band([core_of(number, check=None) for number in range(NODES)])
    air.signed = False
    air.start()
    air.run(2.0)

    assert not any(core.node.excluded for core in air.cores.values())
    assert all(core.hands.counts["taken"] > 3 for core in air.cores.values())


def first_letter(start, target):
    """Return the first message of a node that begins so, after a step towards its target."""
    core = quick_core(0)
    node: Any = core.node
    node.problem.target = jnp.asarray(target, jnp.float32)
    core.step(0.0, start)
    core.step(0.0, events.Saved(1))
    node.wake()
    node.freeze()
    return node.letters[0]


def test_a_node_that_lost_its_folder_counts_on_from_another_number(tmp_path):
    """Twice life 1, with other data: under one number that would be proof against an honest node."""
    logger = Logger("node-0", insecure=True, stream=io.StringIO())
    starts = [
        Drive(quick_core(0), cast(Any, None), Home(tmp_path, "x"), logger)._read() for _ in range(2)
    ]
    assert [start.life for start in starts] == [0, 0]

    letters = [first_letter(start, [k] * 4) for k, start in enumerate(starts)]
    same = [first_letter(starts[0], [k] * 4) for k in range(2)]

    assert len({codec.sequence_of(data) for data in letters}) == 2
    assert {codec.sequence_of(data) >> 32 for data in letters} == {1}
    assert len({codec.sequence_of(data) for data in same}) == 1  # the draw alone tells them apart
    with pytest.raises(EquivocationError):
        receive(*same)
    receive(*letters)


def receive(first, second):
    """Let node 1 take two messages of node 0, the second passed on by node 2; newer or not."""
    node = quick_core(1).node
    for k, (carrier, inner) in enumerate(((0, first), (2, second))):
        stamps = np.zeros(NODES, np.int64)
        cover = fresh_codec.Carried(RUN, carrier, 9 + k, 1, stamps, inner=inner, size=4)
        try:
            node.take(fresh_codec.encode(cover, quick_sign(carrier)))
        except CodecError as error:
            if error.reason != "stale":
                raise
