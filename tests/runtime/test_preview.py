"""`folkman node --check`: everything is read and built, nothing is opened or written, and what is wrong is said."""

import json
import socket

import pytest

from folkman.cli import main
from folkman.runtime import identity
from folkman.runtime.cluster import make_cluster
from folkman.runtime.codec import SERVER
from folkman.runtime.durable import state_bytes
from folkman.runtime.preview import preview, sentences
from runtime.hosts import task


@pytest.fixture
def homes(tmp_path):
    """Write the files of two nodes that take certificates."""
    options = {"transport": "tcp", "radio": "measured", "steps": 7}
    return make_cluster(tmp_path / "cluster", task(nodes=2), options)


def check(monkeypatch, capsys, home, *more):
    """Return exit code, standard output and standard error of `folkman node --check`."""
    monkeypatch.setattr(
        "sys.argv", ["folkman", "node", "--config", str(home / "node.toml"), "--check", *more]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return ended.value.code or 0, shown.out, shown.err


def files(root):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_it_says_what_the_node_would_do_and_touches_nothing(homes, monkeypatch, capsys):
    def refuse(*_, **__):
        raise AssertionError("a check opens no socket")

    before = files(homes[0].parents[1])
    monkeypatch.setattr(socket, "socket", refuse)
    code, words, _ = check(monkeypatch, capsys, homes[0])
    _, line, _ = check(monkeypatch, capsys, homes[0], "--json")

    assert code == 0
    assert files(homes[0].parents[1]) == before
    found = json.loads(line)
    assert (found["node"], found["algorithm"]["name"], found["algorithm"]["step"]) == (
        "node-0",
        "async_sharing",
        0.1,
    )
    assert (found["model"]["name"], found["model"]["parameters"], found["samples"]) == (
        "softmax",
        650,
        200,
    )
    assert list(found["neighbours"]) == found["security"]["members"][1:] == ["node-1"]
    assert (found["steps"], found["steps_done"], found["radio"], found["transport"]) == (
        7,
        0,
        "measured",
        "tcp",
    )
    assert found["security"]["certificate_until"] > "2026"
    for part in (
        "node-0, seed 0",
        "650 parameters",
        "mutual TLS",
        found["neighbours"]["node-1"],
        "7 gradients",
    ):
        assert part in words


def test_the_bytes_of_a_message_are_those_of_the_codec(homes):
    from folkman.runtime.assembly import assemble, read_node, read_task
    from folkman.runtime.telemetry import Logger

    config = read_node(homes[1] / "node.toml")
    drive = assemble(config, read_task(config.config, None, None), Logger("x", insecure=False))

    assert preview(homes[1] / "node.toml")["message_bytes"] == len(drive.core.node.send())


def test_a_server_and_an_insecure_emulated_node_say_so(tmp_path):
    chosen = task(nodes=2, algorithm=[{"name": "fedavg", "step": 0.1}])
    options = {"insecure": True, "radio": "emulated", "wire": "float16", "steps": 0}
    homes = make_cluster(tmp_path / "cluster", chosen, options)
    server, node = preview(homes[-1] / "node.toml"), preview(homes[0] / "node.toml")

    assert server["node"] == identity.name_of(SERVER)
    assert (server["samples"], server["steps"], list(server["neighbours"])) == (
        None,
        None,
        ["node-0", "node-1"],
    )
    assert node["security"] is None
    assert (node["slot_s"], node["steps"]) == (1.0, None)
    assert "NONE: anybody can join" in sentences(node)
    assert "the emulated network pipelined (gamma 5" in sentences(node)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("shard", "there is no"),
        ("certificate", "expected a certificate, there is no"),
        ("other certificate", "is not the certificate of"),
        ("revoked", "node-0 is no member, or was revoked"),
        ("expired", "ended"),
        ("key", "unknown key 'stepz'"),
        ("peer", "[peers] lacks node-1"),
        ("state", "belongs to another run"),
        ("config", "expected a configuration file, there is no"),
        ("label", "there is no label 'Algorithm 2'"),
    ],
)
def test_what_would_stop_the_node_stops_the_check(homes, harm, said, monkeypatch, capsys):
    home, certs, file = homes[0], homes[0].parents[1] / "certs", homes[0] / "node.toml"
    text = file.read_text()
    match harm:
        case "shard":
            (home / "shard.npz").unlink()
        case "certificate":
            (certs / "node-0.crt").unlink()
        case "other certificate":
            (certs / "node-0.crt").write_bytes((certs / "node-1.crt").read_bytes())
        case "revoked":
            identity.revoke(certs, 0)
        case "expired":
            identity.issue(certs, 0, days=-1)
        case "key":
            file.write_text(f"stepz = 3\n{text}")
        case "peer":
            file.write_text(
                "\n".join(line for line in text.splitlines() if not line.startswith("node-1"))
            )
        case "state":
            (home / "state.safetensors").write_bytes(state_bytes({}, "another"))
        case "config":
            (home.parents[1] / "config.toml").unlink()
        case "label":
            file.write_text(text.replace('label = "async_sharing"', 'label = "Algorithm 2"'))

    code, out, error = check(monkeypatch, capsys, home)

    assert (code, out) == (2, "")
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_json_is_for_the_check(homes, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["folkman", "node", "--config", str(homes[0] / "node.toml"), "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "--json goes with --check" in capsys.readouterr().err


SHARED = {"name": "shared", "slots": 0.5, "message": "sum"}


@pytest.mark.parametrize("radio", ["emulated", "measured"])
def test_it_says_what_is_carried_and_who_is_trusted_with_sums(tmp_path, radio):
    options = {"insecure": True, "radio": radio, "trust": {"sums": ["node-1"]}, "transport": "tcp"}
    homes = make_cluster(tmp_path / "sums", task(nodes=3, network=SHARED), options)

    found = preview(homes[0] / "node.toml")
    words = sentences(found)

    assert (found["carries"], found["trusts_sums"]) == ("sum", ["node-1"])
    assert found["message_bytes"] == 144 + 8 + 8 * 3 + 4 * 650
    assert "which no origin can sign; taken of node-1, on trust" in words
    how = {"emulated": "its own transfers from the seed", "measured": "claims the band"}[radio]
    assert how in words


def test_forwards_need_no_trust_and_say_whose_signature_counts(tmp_path):
    network = {**SHARED, "message": "forward"}
    homes = make_cluster(tmp_path / "copies", task(nodes=3, network=network), {"insecure": True})

    found = preview(homes[0] / "node.toml")

    assert (found["carries"], found["trusts_sums"]) == ("forward", None)
    assert found["message_bytes"] == 144 + 8 + 8 * 3 + 144 + 4 * 650
    assert "under its origin's signature" in sentences(found)


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {}, "say who is trusted with sums"),
        ({}, {"trust": {"sums": ["node-7"]}}, "names node-7, expected nodes below 3"),
        (
            {"algorithm": [{"name": "async_sharing", "step": 0.1, "rule": "median"}]},
            {"trust": {"sums": "members"}},
            "uses the copies in another way",
        ),
        (
            {"algorithm": [{"name": "swift", "step": 0.1}]},
            {"trust": {"sums": "members"}},
            "travels another way",
        ),
    ],
    ids=["nobody", "a stranger", "a robust rule", "another method"],
)
def test_sums_that_cannot_be_are_refused_before_a_folder_is_made(tmp_path, changes, options, said):
    chosen = task(nodes=3, network=SHARED, **changes)

    with pytest.raises(ValueError, match=said):
        make_cluster(tmp_path / "sums", chosen, {"insecure": True, **options})
    assert not (tmp_path / "sums").exists()


def test_in_rounds_and_around_a_server_messages_are_copies_whatever_the_band_carries(tmp_path):
    chosen = task(
        nodes=2,
        network={"name": "radio", "schedule": "index", "message": "sum"},
        algorithm=[{"name": "fedavg", "step": 0.1}],
    )
    homes = make_cluster(tmp_path / "star", chosen, {"insecure": True})

    assert preview(homes[0] / "node.toml")["carries"] == "copy"
