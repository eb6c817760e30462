"""A node of the version before the core, as recorded: today's node understands what it says, and
refuses it with a clear word where it is in another run."""

import json
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from folkman import Node, async_sharing, load, make_problem
from folkman.runtime import control
from folkman.runtime.codec import CodecError
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Wire
from runtime.test_transport import Ear, until
from runtime.threaded import Tcp

SAID = json.loads((Path(__file__).parents[1] / "data" / "before_core.json").read_text())
FRAMES = [(kind, bytes.fromhex(content)) for kind, content in SAID["frames"]]
RUN, NODE = int(SAID["run"], 16), SAID["node"]
WORDS = [content for kind, content in FRAMES if kind == 3]
MODELS = [content for kind, content in FRAMES if kind == 2]


def verify(node, content, signature):
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(SAID["key"])).verify(signature, content)
    except InvalidSignature:
        return False
    return node == NODE


def test_its_words_are_understood_in_their_order():
    voice = control.Voice(RUN, 1, 1, None, verify)

    heard = [voice.hear(NODE, word) for word in WORDS]

    kinds = [type(body).__name__ for body in heard]
    assert kinds == ["Hello", "Hello", "Period", "Hello", "Hello", "Done"]
    assert heard[0] == control.Hello(0.0, 0, 1)
    assert heard[2] == control.Period(0.0, [1])
    assert heard[-1] == control.Done(4)
    with pytest.raises(CodecError, match="was heard before"):
        voice.hear(NODE, WORDS[0])


def test_its_models_are_taken_and_learnt_from():
    problem = make_problem(load("digits", train_size=60), "softmax", 2)
    wire = Wire(RUN, None, Checks(verify))
    node = Node(1, problem.of_node(1), async_sharing(0.1), np.asarray(problem.share), wire=wire)

    taken = [node.take(data) for data in MODELS]

    assert [(each.node, each.sequence >> 32, each.slot) for each in taken] == [(0, 1, 1), (0, 1, 4)]
    np.testing.assert_array_equal(node.mailbox.payload[0], taken[-1].params)
    assert np.abs(taken[-1].params).max() > 0
    assert node.wake()
    other = Node(1, problem.of_node(1), async_sharing(0.1), np.asarray(problem.share))
    with pytest.raises(CodecError) as refused:  # of another configuration
        other.take(MODELS[0])
    assert refused.value.reason == "run"


@pytest.fixture
def listener():
    """Let today's node 1 listen; return how to say frames to it, and what it tells of them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    made = []

    def listens(run):
        ear = Ear()
        places = {NODE: ("127.0.0.1", 1)}
        made.append(Tcp(1, place, places, run=run, largest_bytes=9999, security=None))
        made[0].open(ear)
        caller = socket.create_connection(place, 5)
        caller.sendall(
            b"".join(struct.pack("<BI", kind, len(data)) + data for kind, data in FRAMES)
        )
        made.append(caller)
        return ear

    yield listens
    for each in reversed(made):
        each.close()


@pytest.mark.process
def test_its_link_comes_up_and_brings_all_of_it(listener):
    ear = listener(RUN)

    until(lambda: len(ear.control) == len(WORDS))
    assert ear.control == [(NODE, word) for word in WORDS]
    assert ear.params == [(NODE, data) for data in MODELS]
    assert not ear.refusals


@pytest.mark.process
def test_in_another_run_it_is_told_apart_with_advice(listener):
    """A later version may resolve the same configuration to other bytes, and so to another run."""
    ear = listener(RUN + 1)

    until(lambda: ear.refusals)
    ((reason, text),) = ear.refusals
    assert reason == "run"
    assert f"{RUN:016x}" in text
    assert "version of folkman" in text
    assert not ear.ups
    assert not ear.control
