"""A node's door for operators, over real sockets and real TLS: who is let in, and what nobody can do."""

import json
import shutil
import socket
import ssl

import pytest
from cryptography import x509
from doors import asked, authority, connected, context_of, hung_up, received, until, why

from folkman.runtime import identity
from folkman.runtime.fleet import words
from folkman.runtime.operators import make_operator, operator_in, revoke_operator

# -- who is let in ---------------------------------------------------------------------------------


def test_an_operator_sees_how_the_node_stands(door, certs):
    (found,) = asked(door, certs, words.Status())

    assert isinstance(found, words.Standing)
    assert found.facts == {**door.facts, "operator_door": {"questions": 1}}


def test_it_is_tls_13_and_both_show_certificates(door, certs):
    with connected(door, certs) as line:
        assert line.version() == "TLSv1.3"
    old = context_of(certs, "operator-alice")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(door.place, 10) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw, server_hostname="node-0")


def test_a_nodes_certificate_opens_no_door(door, certs):
    with connected(door, certs, name="node-1") as line:
        line.sendall(words.frame(words.Stop()))
        found = received(line)
    assert isinstance(found, words.Refused)
    assert found.reason == "role"
    assert "has no operator's role" in found.text
    assert door.stops == []
    assert door.events("operator refused")[0]["reason"] == "role"


def test_an_operator_of_another_authority_is_refused(door, certs, tmp_path):
    other = authority(tmp_path / "other", nodes=())
    shutil.copy(certs / "ca.crt", other / "ca.crt")  # so that it trusts the node
    with connected(door, other) as line:
        assert hung_up(line)
    assert door.door.counts["questions"] == 0


def test_no_certificate_at_all_is_refused(door, certs):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certs / "ca.crt")
    raw = socket.create_connection(door.place, 10)
    with context.wrap_socket(raw, server_hostname="node-0") as line:
        assert hung_up(line)
    assert door.door.counts["questions"] == 0


def test_an_operator_that_was_revoked_is_refused_while_it_is_connected(door, certs):
    with connected(door, certs) as line:
        line.sendall(words.frame(words.Status()))
        assert isinstance(received(line), words.Standing)
        revoke_operator(certs, "alice")
        line.sendall(words.frame(words.Stop()))
        found = received(line)
        assert isinstance(found, words.Refused)
        assert "was revoked" in found.text
        assert line.recv(1) == b""
    assert door.stops == []
    assert "was revoked" in why(door, certs)


def test_an_operator_that_is_not_in_the_list_is_refused(door, certs, tmp_path):
    """The authority's signature is not enough: the node's list has no such operator."""
    shutil.copytree(certs, tmp_path / "elsewhere")
    make_operator(tmp_path / "elsewhere", "bob")
    assert "there is no operator 'bob'" in why(door, tmp_path / "elsewhere", operator="bob")
    shutil.copy(tmp_path / "elsewhere" / "members.json", certs)  # the node reads it at once
    assert asked(door, tmp_path / "elsewhere", words.Status(), operator="bob")


def test_a_list_that_is_damaged_leaves_the_last_one_in_force(door, certs, tmp_path):
    shutil.copytree(certs, tmp_path / "kept")
    (certs / "members.json").write_text("{")
    assert asked(door, tmp_path / "kept", words.Status())


def test_an_older_certificate_of_an_operator_is_refused(door, certs, tmp_path):
    shutil.copytree(certs, tmp_path / "stolen")
    make_operator(certs, "alice")

    assert "not the one last issued" in why(door, tmp_path / "stolen")
    assert asked(door, certs, words.Status())


def test_an_expired_operator_is_refused(door, certs):
    make_operator(certs, "alice", days=-1)
    door.members.reload()

    with pytest.raises(ValueError, match=r"operator-alice\.crt ended .* folkman certs operator"):
        operator_in(certs)
    with connected(door, certs) as line:  # whoever does not look at its own certificate
        assert hung_up(line)
    assert door.door.counts["questions"] == 0
    until(lambda: door.events("operator refused"))
    assert "certificate has expired" in door.events("operator refused")[0]["text"]
    assert "ended" in door.members.why_not_operator("alice", door.members.operators["alice"].serial)


def test_an_operator_is_no_member_of_the_cluster(certs):
    """Its name is no node's, so that a link refuses it; and nobody can serve under it."""
    members = identity.Members(certs / "members.json", certs / "ca.crt")
    assert members.node_called("operator-alice") is None
    text = (certs / "operator-alice.crt").read_bytes()
    usage = x509.load_pem_x509_certificate(text).extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert list(usage.value) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]


def test_another_protocol_under_a_right_certificate_is_refused(door, certs):
    for protocol in ("", "folkman-operator/2", "h2"):
        with connected(door, certs, protocol=protocol) as line:
            assert hung_up(line)
    assert door.events("operator refused")[0]["reason"] == "protocol"
    assert door.door.counts["refused"] == 3


def test_a_node_under_anothers_name_is_not_believed(door, certs):
    assert "certificate does not hold" in why(door, certs, name="node-1")


def test_a_revoked_node_is_not_believed(door, certs):
    identity.revoke(certs, 0)
    assert "its certificate is revoked, or not the one last issued" in why(door, certs)


def test_the_operators_list_is_under_the_authoritys_signature(certs):
    path = certs / "members.json"
    content = json.loads(path.read_text())
    content["operators"].append(content["operators"][0] | {"name": "eve"})
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not a list that"):
        identity.Members(path, certs / "ca.crt")


def test_operators_of_an_older_list_do_not_come_back(certs):
    """The version is signed with them: a revoked operator of version 4 is none of version 5."""
    path = certs / "members.json"
    old = json.loads(path.read_text())
    revoke_operator(certs, "alice")
    new = json.loads(path.read_text())
    mixed = {key: old[key] for key in ("operators", "operators_signature")}
    path.write_text(json.dumps(new | mixed))
    with pytest.raises(ValueError, match="is not a list that"):
        identity.Members(path, certs / "ca.crt")


def test_a_list_of_an_earlier_folkman_lets_no_operator_in(certs):
    path = certs / "members.json"
    content = json.loads(path.read_text())
    del content["operators"], content["operators_signature"]
    path.write_text(json.dumps(content))
    known = identity.Members(path, certs / "ca.crt")
    assert known.allowed(0)
    assert "there is no operator" in known.why_not_operator("alice", "1")


@pytest.mark.parametrize("name", ["", "Alice", "a/b", "-a", "a" * 33, "../x", "node 0"])
def test_an_operators_name_is_a_plain_word(certs, name):
    with pytest.raises(ValueError, match="an operator's name is of"):
        make_operator(certs, name)


def test_an_operators_key_is_its_own(certs):
    (certs / "operator-alice.key").chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        operator_in(certs)
