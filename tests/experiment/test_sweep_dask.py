"""Sweeps on dask: the same table, by a local cluster or over three hosts with mutual TLS; strangers
are refused."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from dask_cluster import authority, await_line, dask

from folkman.experiment.engines import Crew, bounds, engine_for
from shell import folkman

SWEEP = """
slots = 40
seeds = [0, 1]
nodes = 3
[data]
name = "digits"
train_size = 60
[model]
name = "softmax"
[[algorithm]]
name = "async_sharing"
label = "Algorithm 1"
step = 0.2
[grid]
network.gamma = [2, 3]
"""
MANY = SWEEP.replace("seeds = [0, 1]", f"seeds = {list(range(10))}").replace(
    "[2, 3]", str(list(range(1, 21)))
)
HOSTS = ("10.77.9.1", "10.77.9.2", "10.77.9.3")


def on_host(prefix, *arguments, cwd):
    """Run a command of folkman on a host of its own."""
    command = [*prefix, sys.executable, "-m", "folkman", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def of_folkman(tls):
    return ["--tls-ca", tls["ca"], "--tls-cert", tls["cert"], "--tls-key", tls["key"]]


@pytest.mark.process
@pytest.mark.slow
def test_a_local_cluster_gives_the_same_table(tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("[2, 3]", "[2]"))
    runs = [
        folkman(
            "sweep", "sweep.toml", "--out", engine, "--engine", engine, "--workers", 1, cwd=tmp_path
        )
        for engine in ("processes", "dask")
    ]

    assert [run.returncode for run in runs] == [0, 0], runs[1].stderr
    one, two = (
        (tmp_path / engine / "results.parquet").read_bytes() for engine in ("processes", "dask")
    )
    assert one == two


@pytest.mark.process
@pytest.mark.slow
def test_a_stranger_is_refused_by_the_scheduler_and_a_friend_is_not(tmp_path):
    friend = authority(tmp_path / "friend", "friend", ["127.0.0.1"])
    rogue = authority(tmp_path / "rogue", "rogue", ["127.0.0.1"])
    (tmp_path / "sweep.toml").write_text(SWEEP)
    log, address = tmp_path / "scheduler.log", "tls://127.0.0.1:18786"
    with dask(
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        18786,
        "--protocol",
        "tls",
        tls=friend,
        log=log,
    ):
        await_line(log, "Scheduler at")
        refused = folkman(
            "sweep", "sweep.toml", "--engine", address, *of_folkman(rogue), cwd=tmp_path
        )
        from distributed import Client
        from distributed.security import Security

        known = Security(
            tls_ca_file=str(friend["ca"]),
            tls_client_cert=str(friend["cert"]),
            tls_client_key=str(friend["key"]),
            require_encryption=True,
        )
        with Client(address, security=known, timeout="30s") as client:
            assert client.scheduler_info()["workers"] == {}

    assert refused.returncode == 2, refused.stderr
    assert "no answer from a dask scheduler" in refused.stderr
    assert "certificate" in refused.stderr.lower()
    assert "Traceback" not in refused.stderr


@pytest.mark.process
@pytest.mark.slow
def test_the_limits_of_a_cluster_that_is_there_are_its_own_and_told(tmp_path):
    """Workers started with 3 and 4 GB: the sweep says so, and refuses to promise another limit."""
    tls = authority(tmp_path / "friend", "friend", ["127.0.0.1"])
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("[2, 3]", "[2]"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address, log = f"tls://127.0.0.1:{port}", tmp_path / "scheduler.log"
    sweep = ["sweep", "sweep.toml", "--engine", address, *of_folkman(tls)]
    at = ("scheduler", "--host", "127.0.0.1", "--port", port, "--protocol", "tls")
    with ExitStack() as stack:
        stack.enter_context(dask(*at, tls=tls, log=log))
        await_line(log, "Scheduler at")
        engine = engine_for(
            Crew(address, 1, None, *(str(tls[name]) for name in ("ca", "cert", "key")))
        )
        stack.callback(engine.close)
        alone = engine.about
        for limit in ("3GB", "4GB"):
            log = tmp_path / f"{limit}.log"
            worker = (
                "worker",
                address,
                "--nthreads",
                "1",
                "--nworkers",
                "1",
                "--memory-limit",
                limit,
            )
            stack.enter_context(dask(*worker, tls=tls, log=log))
            await_line(log, "Registered to")
        refused = folkman(*sweep, "--out", "refused", "--memory", "4GB", cwd=tmp_path)
        done = folkman(*sweep, "--out", "done", cwd=tmp_path)

    assert alone == f"no workers at {address} yet; jobs wait until there are some"
    assert done.returncode == 0, done.stderr
    assert f"2 workers at {address}, at most 3000 to 4000 MB of memory each" in done.stderr
    assert refused.returncode == 2
    assert "--memory-limit 4GB" in refused.stderr
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([2_000_000_000, 2_000_000_000], "at most 2000 MB of memory each"),
        ([0, None], "whose memory nothing bounds"),
        ([0, 5_000_000], "at most 5 MB of memory each, some without a bound"),
    ],
)
def test_limits_in_words(limits, words):
    assert bounds(limits) == words


@contextmanager
def three_hosts():
    """Make three network namespaces on one bridge, each with an address of its own; take them down
    after."""

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    names = [f"fs{os.getpid() % 10000}{letter}" for letter in "abc"]
    bridge = f"fs{os.getpid() % 10000}br"
    with ExitStack() as stack:
        ip("link", "add", bridge, "type", "bridge")
        stack.callback(ip, "link", "del", bridge)
        ip("link", "set", bridge, "up")
        for name, address in zip(names, HOSTS, strict=True):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("link", "add", f"{name}0", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}0", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [("ip", "netns", "exec", name) for name in names]


def may_make_namespaces():
    try:
        made = (
            subprocess.run(
                ["ip", "netns", "add", "fsprobe"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False
    if made:
        subprocess.run(["ip", "netns", "del", "fsprobe"], capture_output=True, check=False)
    return made


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.soak
def test_three_hosts_over_mutual_tls_give_the_same_table_and_refuse_a_rogue_worker(tmp_path):
    if not may_make_namespaces():
        pytest.skip("network namespaces need root and iproute2")
    (tmp_path / "sweep.toml").write_text(MANY)
    whole = folkman("sweep", "sweep.toml", "--out", "whole", "--workers", 2, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    friend = authority(tmp_path / "friend", "friend", HOSTS)
    rogue = authority(tmp_path / "rogue", "rogue", HOSTS)
    address = f"tls://{HOSTS[0]}:8786"
    logs = {name: tmp_path / f"{name}.log" for name in ("scheduler", "one", "two", "rogue")}
    with three_hosts() as prefixes, ExitStack() as stack:
        at = ("scheduler", "--host", HOSTS[0], "--port", "8786", "--protocol", "tls")
        stack.enter_context(dask(*at, tls=friend, log=logs["scheduler"], prefix=prefixes[0]))
        await_line(logs["scheduler"], "Scheduler at")
        for name, host, prefix in (("one", HOSTS[1], prefixes[1]), ("two", HOSTS[2], prefixes[2])):
            worker = (
                "worker",
                address,
                "--host",
                host,
                "--nthreads",
                "1",
                "--nworkers",
                "1",
                "--name",
                name,
            )
            stack.enter_context(dask(*worker, tls=friend, log=logs[name], prefix=prefix))
        for name in ("one", "two"):
            await_line(logs[name], "Registered to", 240)
        stranger = (
            "worker",
            address,
            "--host",
            HOSTS[2],
            "--nthreads",
            "1",
            "--nworkers",
            "1",
            "--name",
            "rogue",
        )
        stack.enter_context(dask(*stranger, tls=rogue, log=logs["rogue"], prefix=prefixes[2]))
        options = ["--engine", address, *of_folkman(friend)]
        done = on_host(prefixes[0], "sweep", "sweep.toml", "--out", "hosts", *options, cwd=tmp_path)
        bad = ["--engine", address, *of_folkman(rogue)]
        refused = on_host(prefixes[0], "sweep", "sweep.toml", "--out", "bad", *bad, cwd=tmp_path)
        await_line(logs["rogue"], "ertificate")

    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "hosts" / "index.json").read_text())
    assert [job["state"] for job in index["jobs"]] == 200 * ["finished"]
    assert sorted(worker["jobs"] > 20 for worker in index["workers"]) == [
        True,
        True,
    ]  # both hosts worked
    assert (tmp_path / "hosts" / "results.parquet").read_bytes() == (
        tmp_path / "whole" / "results.parquet"
    ).read_bytes()
    assert refused.returncode == 2
    assert "Registered to" not in logs["rogue"].read_text()
    assert not (tmp_path / "bad" / "results.parquet").exists()
