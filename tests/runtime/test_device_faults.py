"""Real processes on hosts of their own, and everything that goes wrong between them, under both transports."""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from runtime.hosts import Cluster, Hosts, task, why_no_hosts

pytestmark = [
    pytest.mark.soak,  # minutes of wall time; on a loaded machine two of them have failed
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "-"),
]
PAST = "import time\n_real = time.time\ntime.time = lambda: _real() - 3600.0\n"


@pytest.fixture(scope="module", params=["tcp", "zenoh"])
def cluster(request, tmp_path_factory):
    """Three nodes at work; the fourth joins late. They learn for ever."""
    hosts = Hosts(4)
    made = None
    try:
        root = tmp_path_factory.mktemp(request.param) / "cluster"
        options = {"transport": request.param, "radio": "measured", "slot_s": 0.05, "steps": 0}
        options |= {"save_every_s": 0.5, "period_timeout_s": 5.0, "start_wait_s": 1.0}
        made = Cluster(root, task(nodes=4), options, hosts)
        for i in range(3):
            made.start(i)
        made.until(
            lambda: all(len(made.health(i)["linked"]) == 2 for i in range(3)),
            "three nodes are linked",
        )
        yield made
    finally:
        if made is not None:
            made.close()
        hosts.close()


def test_a_node_that_joins_late_is_heard_and_hears(cluster):
    cluster.until_all_exchange(range(3))  # they do not wait for one that is not there

    cluster.start(3)

    cluster.until(lambda: len(cluster.health(3)["linked"]) == 3, "the late one is linked")
    cluster.until_all_exchange(range(4))


def test_a_fifth_of_all_packets_may_be_lost(cluster):
    cluster.hosts.set(loss=0.2)

    cluster.until_all_exchange(range(4), messages=30)

    cluster.hosts.set()


def test_delay_and_jitter_are_lived_with_and_measured(cluster):
    cluster.hosts.set(delay_s=0.2, jitter_s=0.05)

    cluster.until_all_exchange(range(4), messages=6)

    def slowest():
        return min(max(cluster.health(i)["latency_s"].values(), default=0.0) for i in range(4))

    cluster.until(lambda: slowest() > 0.15, "the averages have followed")
    cluster.hosts.set()


def test_a_partition_stops_nobodys_learning_and_heals(cluster):
    apart = [[0, j] for j in (1, 2, 3)]
    cluster.hosts.set(cut=apart)
    begun_s = time.monotonic()
    time.sleep(0.5)
    before = cluster.health(0)["steps"]
    time.sleep(3.0)
    alone = cluster.health(0)["steps"]
    cluster.until_all_exchange([1, 2, 3])
    time.sleep(max(0.0, 10.0 - (time.monotonic() - begun_s)))

    cluster.hosts.set()

    assert alone > before
    cluster.until_all_exchange(range(4))


def test_a_node_killed_at_any_instant_goes_on_from_its_last_save(cluster):
    rng = np.random.default_rng(0)
    for i in rng.permutation(4)[:2]:  # of all in turn, a hundred times: test_soak.py
        saved = cluster.health(int(i))
        time.sleep(rng.uniform(0, 0.3))
        cluster.kill(int(i))
        cluster.start(int(i))
        cluster.until(
            lambda i=int(i), life=saved["incarnation"]: cluster.health(i)["incarnation"] > life,
            "it is back",
        )
        begun = [line for line in cluster.log(int(i)) if line["event"] == "start"][-1]
        assert begun["steps"] >= saved["saved_steps"] > 0
    cluster.until_all_exchange(range(4))


def test_a_clock_an_hour_wrong_matters_to_nobody(cluster, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(PAST)
    shown = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(shown.stdout) < time.time() - 3000

    cluster.kill(2)
    cluster.start(2, PYTHONPATH=str(tmp_path))

    cluster.until(lambda: len(cluster.health(2)["linked"]) == 3, "it is linked")
    cluster.until_all_exchange(range(4))


def test_a_full_disk_costs_saves_and_not_learning(cluster):
    home = cluster.homes[1]
    cluster.kill(1)
    kept = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(home)], check=False
    ).returncode:
        cluster.start(1)
        pytest.skip("no small disk can be mounted here")
    try:
        for name, data in kept.items():
            (home / name).write_bytes(data)
        cluster.start(1)
        cluster.until_all_exchange([1])
        with contextlib.suppress(OSError):
            (home / "filler").write_bytes(bytes(4 << 20))
        failed = cluster.health(1)["counts"]["saves_failed"]
        time.sleep(2.0)
        (home / "filler").unlink()
        cluster.until(lambda: cluster.health(1)["counts"]["saves_failed"] > failed, "a save failed")
        saves = cluster.health(1)["counts"]["saves"]
        cluster.until(lambda: cluster.health(1)["counts"]["saves"] > saves, "saves go on")
        cluster.until_all_exchange(range(4))
    finally:
        cluster.kill(1)
        subprocess.run(["umount", str(home)], check=False)
        cluster.start(1)


def test_a_node_that_never_returns_is_not_missed(cluster):
    cluster.until_all_exchange([1])
    cluster.kill(3)

    cluster.until(
        lambda: all(len(cluster.health(i)["linked"]) == 2 for i in range(3)), "its links are gone"
    )
    cluster.until_all_exchange(range(3))
