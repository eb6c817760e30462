"""The long ones, run by `make soak`: a hundred kills, sixteen nodes under load, a million bad messages."""

import json
import os
import time

import numpy as np
import pytest

from folkman import Node, async_sharing, load, make_problem
from folkman.runtime import identity
from folkman.runtime.codec import CodecError, Message, encode
from folkman.runtime.control import Ack, Control, Hello, open_sealed, seal
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Wire
from folkman.runtime.state import read_arrays
from runtime.hosts import Cluster, task

SIZE = {"messages": 20_000}  # in the suite; the soak asks for a million


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mutated(rng, pool):
    """Return bytes near a good message: flipped, cut, joined, with fields overwritten; or noise."""
    data = bytearray(pool[rng.integers(len(pool))])
    kind = rng.integers(6)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 400)))
    if kind == 1:
        return bytes(data[: rng.integers(0, len(data))])
    if kind == 2:
        return bytes(data) + rng.bytes(int(rng.integers(1, 64)))
    if kind == 3:
        other = pool[rng.integers(len(pool))]
        cut = int(rng.integers(0, min(len(data), len(other))))
        return bytes(data[:cut]) + other[cut:]
    if kind == 4:
        at = int(rng.integers(0, max(len(data) - 8, 1)))
        data[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" * 8, rng.bytes(8)])
        return bytes(data)
    for _ in range(int(rng.integers(1, 5))):
        data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
    return bytes(data)


def bombard(folder, number, seed=0):
    """Throw bad messages at a node's mailbox and control; return what happened."""
    identity.init(folder)
    for node in range(3):
        identity.issue(folder, node)
    members = identity.Members(folder / "members.json", folder / "ca.crt")
    keys = [identity.Identity(folder, node) for node in range(3)]
    problem = make_problem(load("digits", train_size=60), "softmax", 3)
    wire = Wire(7, keys[0].sign, Checks(members.verify, 1e6))
    node = Node(0, problem.of_node(0), async_sharing(0.1), np.asarray(problem.share), wire=wire)
    rng = np.random.default_rng(seed)
    values = rng.normal(size=problem.dim).astype(np.float32)
    good = [
        encode(Message(7, j, k, k, values, 0), keys[j].sign) for j in (1, 2) for k in range(1, 6)
    ]
    bad = [
        encode(Message(7, 1, 2**40, 0, np.full(problem.dim, np.nan, np.float32)), keys[1].sign),
        encode(Message(7, 1, 2**40, 0, np.full(problem.dim, 1e30, np.float32)), keys[1].sign),
        encode(Message(7, 2, 2**40, 0, values), keys[1].sign),  # under another's name
        encode(Message(7, 1, 2**40, 0, values)),  # unsigned
    ]
    told = [
        seal(Control(7, 1, k, body), keys[1].sign)
        for k, body in enumerate([Ack(5), Hello(1.0, 2, 3)])
    ]
    assert all(node.receive(data) for data in good)
    kept, refused, began_bytes = node.mailbox.payload.copy(), 0, 0
    for at in range(number):
        if at == number // 10:
            began_bytes = resident_bytes()
        data = mutated(rng, told if at % 4 == 0 else good + bad)
        if at % 4 == 0:
            try:
                open_sealed(data, 7, members.verify)
            except CodecError:
                refused += 1
        else:
            refused += not node.receive(data)
    grown = resident_bytes() - began_bytes
    np.testing.assert_array_equal(node.mailbox.payload, kept)  # not a bit of it was applied
    assert node.wake()
    return {
        "messages": number,
        "refused": refused,
        "grown_mb": grown / 1e6,
        "reasons": dict(node.mailbox.refused),
    }


def test_bad_messages_change_nothing_and_cost_no_memory(tmp_path):
    found = bombard(tmp_path / "certs", SIZE["messages"])

    assert found["refused"] > 0.95 * found["messages"]
    assert {"length", "digest", "signature", "stale"} <= set(found["reasons"])
    assert found["grown_mb"] < 30


@pytest.mark.soak
def test_a_million_bad_messages(tmp_path):
    found = bombard(tmp_path / "certs", 1_000_000, seed=1)

    print(json.dumps(found))
    assert found["grown_mb"] < 30


@pytest.mark.soak
@pytest.mark.parametrize("transport", ["tcp", "zenoh"])
def test_a_hundred_kills(tmp_path, transport):
    kills = int(os.environ.get("FOLKMAN_SOAK_KILLS", "50"))  # under each transport
    options = {"transport": transport, "radio": "measured", "slot_s": 0.05, "steps": 0}
    options |= {"save_every_s": 0.5, "start_wait_s": 10.0}
    cluster, rng, lost = (
        Cluster(tmp_path / "cluster", task(nodes=5), options),
        np.random.default_rng(3),
        [],
    )
    killed = {}
    try:
        for i in range(5):
            cluster.start(i)
        cluster.until(
            lambda: all(cluster.health(i)["steps"] > 5 for i in range(5)), "all learn", 300
        )
        for kill in range(kills + 5):  # the last five turns only look whether all came back
            i = kill % 5
            if i in killed:
                life, on_disk = killed.pop(i)

                def back(i=i, life=life):
                    health = cluster.health(i)
                    return health["incarnation"] > life and health["steps"] > 0

                cluster.until(back, "it is back", 300)
                begun = [line for line in cluster.log(i) if line["event"] == "start"][-1]
                assert begun["steps"] == on_disk
            if kill >= kills:
                continue
            time.sleep(rng.uniform(0, 1.0))
            before = cluster.health(i)
            cluster.kill(i)
            state = cluster.homes[i] / "state.safetensors"
            on_disk = (
                int(read_arrays(state)["counters"][1]) if state.exists() else 0
            )  # whole, whatever the instant
            assert on_disk >= before["saved_steps"]
            lost.append(before["steps"] - on_disk)
            cluster.start(i)
            killed[i] = (before["incarnation"], on_disk)
        cluster.until_all_exchange(range(5), patience_s=300)
        losses = [cluster.health(i)["loss"] for i in range(5)]
    finally:
        cluster.close()

    print(
        json.dumps(
            {
                "transport": transport,
                "kills": kills,
                "steps_lost_mean": np.mean(lost),
                "losses": losses,
            }
        )
    )
    assert all(loss < 2.0 for loss in losses)  # of ln 10 at the start


@pytest.mark.soak
def test_sixteen_nodes_of_the_papers_cnn(tmp_path):
    nodes, minutes = 16, float(os.environ.get("FOLKMAN_SOAK_MINUTES", "10"))
    rng = np.random.default_rng(0)
    images = rng.random((320, 28, 28, 1), np.float32)
    np.savez(
        tmp_path / "images.npz",
        x_train=images,
        y_train=np.arange(320) % 10,
        x_test=images[:10],
        y_test=np.arange(10),
    )
    chosen = task(
        nodes=nodes,
        batch=2,
        data={"name": "npz", "path": str(tmp_path / "images.npz")},
        model={"name": "cnn"},
        algorithm=[{"name": "async_sharing", "step": 0.01}],
    )
    options = {
        "transport": os.environ.get("FOLKMAN_SOAK_TRANSPORT", "zenoh"),
        "radio": "measured",
        "slot_s": 1.0,
    }
    options |= {"shared_medium": False}
    options |= {"steps": 0, "save_every_s": 20.0, "start_wait_s": 300.0}
    cluster = Cluster(tmp_path / "cluster", chosen, options)
    try:
        for i in range(nodes):
            cluster.start(i, XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")
            time.sleep(2.0)
        cluster.until(
            lambda: all(cluster.health(i)["steps"] > 3 for i in range(nodes)), "all learn", 900
        )
        time.sleep(30.0)
        first = [cluster.health(i) for i in range(nodes)]
        time.sleep(60.0 * minutes)
        last = [cluster.health(i) for i in range(nodes)]
    finally:
        cluster.close()

    spans = [b["uptime_s"] - a["uptime_s"] for a, b in zip(first, last, strict=True)]
    sent = [
        b["transport"]["bytes_sent"] - a["transport"]["bytes_sent"]
        for a, b in zip(first, last, strict=True)
    ]
    cpu = [b["cpu_s"] - a["cpu_s"] for a, b in zip(first, last, strict=True)]
    growth = [
        (b["memory_bytes"] - a["memory_bytes"]) / 1e6 for a, b in zip(first, last, strict=True)
    ]
    latency = sorted(value for each in last for value in each["latency_s"].values())
    found = {
        "transport": options["transport"],
        "seconds": np.mean(spans),
        "goodput_mb_s": sum(sent) / np.mean(spans) / 1e6,
        "cpu_share_per_node": np.mean(np.array(cpu) / np.array(spans)),
        "latency_ms": [1e3 * latency[len(latency) // 2], 1e3 * latency[int(0.99 * len(latency))]],
        "memory_mb": [
            np.mean([each["memory_bytes"] for each in some]) / 1e6 for some in (first, last)
        ],
        "growth_mb_max": max(growth),
        "steps": [np.mean([each["steps"] for each in some]) for some in (first, last)],
        "refused": sum(sum(each["refused"].values()) for each in last),
    }
    print(json.dumps(found))
    assert found["growth_mb_max"] < 40
    assert all(b["steps"] > a["steps"] for a, b in zip(first, last, strict=True))
    assert found["refused"] == 0
