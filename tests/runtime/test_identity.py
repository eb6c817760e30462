"""Identities: keys that only their owner reads, a list that only the authority writes, and who is refused."""

import json
import os
from functools import partial

import pytest

from folkman.runtime import identity
from folkman.runtime.codec import SERVER, CodecError, Message, decode, encode
from folkman.runtime.disk import FolderDisk
from folkman.runtime.durable import read_members_seen, save_members_seen
from shell import folkman


@pytest.fixture
def folder(tmp_path):
    identity.init(tmp_path / "certs")
    for node in (0, 1, SERVER):
        identity.issue(tmp_path / "certs", node)
    return tmp_path / "certs"


def members(folder):
    return identity.Members(folder / "members.json", folder / "ca.crt")


def test_keys_can_be_read_by_their_owner_alone(folder):
    old = os.umask(0)
    try:
        identity.issue(folder, 7)
    finally:
        os.umask(old)

    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("*.key")}

    assert len(modes) == 9
    assert set(modes.values()) == {0o600}


def test_a_key_that_others_can_read_is_refused(folder):
    (folder / "node-0.sign.key").chmod(0o640)

    with pytest.raises(ValueError, match="chmod 600"):
        identity.Identity(folder, 0)


def test_a_signature_is_one_members_and_of_one_content(folder):
    known = members(folder)
    signature = identity.Identity(folder, 1).sign(b"content")

    assert known.verify(1, b"content", signature)
    assert not known.verify(0, b"content", signature)
    assert not known.verify(1, b"contend", signature)
    assert not known.verify(5, b"content", signature)
    assert not known.verify(1, b"content", b"")


def test_a_message_under_anothers_name_is_refused(folder, np_params):
    known, thief = members(folder), identity.Identity(folder, 1)
    honest = encode(Message(9, 1, 1, 0, np_params), thief.sign)
    forged = encode(Message(9, 0, 1, 0, np_params), thief.sign)

    assert decode(honest, 9, len(np_params), known.verify).node == 1
    for data in (forged, encode(Message(9, 1, 1, 0, np_params))):
        with pytest.raises(CodecError) as caught:
            decode(data, 9, len(np_params), known.verify)
        assert caught.value.reason == "signature"


@pytest.fixture
def np_params():
    import numpy as np

    return np.arange(5, dtype=np.float32)


def test_the_list_is_read_again_and_revokes(folder):
    known, signature = members(folder), identity.Identity(folder, 1).sign(b"x")
    assert not known.reload()

    identity.revoke(folder, 1)

    assert known.reload()
    assert not known.verify(1, b"x", signature)
    assert known.node_called("node-1") is None
    assert known.node_called("server") == SERVER
    assert {row["name"]: row["state"] for row in identity.show(folder)}["node-1"] == "revoked"


def test_a_list_that_the_authority_did_not_sign_is_refused_and_the_last_one_stays(folder):
    known, signature = members(folder), identity.Identity(folder, 1).sign(b"x")
    content = json.loads((folder / "members.json").read_text())
    content["members"][0]["key"] = "00" * 32
    (folder / "members.json").write_text(json.dumps(content))

    with pytest.raises(ValueError, match="is not a list that"):
        known.reload()

    assert known.verify(1, b"x", signature)


def test_an_old_list_that_is_put_back_makes_nobody_a_member_again(folder, tmp_path):
    path, disk = folder / "members.json", FolderDisk(tmp_path)
    known = members(folder)
    known.remember(partial(save_members_seen, disk))
    old = path.read_bytes()
    identity.revoke(folder, 1)
    assert known.reload()
    assert (known.version, read_members_seen(disk)) == (5, 5)  # made, three issued, one revoked

    path.write_bytes(old)

    text = "has version 4, this node has seen version 5: an older list was put back"
    with pytest.raises(ValueError, match=text):
        known.reload()
    assert not known.allowed(1)
    with pytest.raises(ValueError, match=text):  # nor after a restart
        identity.Members(path, folder / "ca.crt", read_members_seen(disk))
    identity.issue(folder, 1)  # from the old list: version 5 again, with other members
    identity.issue(folder, 1)
    assert known.reload()


@pytest.mark.parametrize("change", [{"version": 9}, {"version": 0}, {"version_signature": "00"}])
def test_the_version_is_signed(folder, change):
    """A list that drops its version counts as version 0, which a node that has seen one refuses."""
    path = folder / "members.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ValueError, match=r"is not a list that|has version 0, this node has seen"):
        identity.Members(path, folder / "ca.crt", least=1)


def test_a_list_of_an_earlier_folkman_opens_as_version_0_and_is_given_one(folder):
    path = folder / "members.json"
    content = json.loads(path.read_text())
    old = {key: content[key] for key in ("members", "signature")}  # nodes before read these alone
    path.write_text(json.dumps(old))

    assert members(folder).version == 0
    identity.revoke(folder, 0)
    assert members(folder).version == 1


def test_an_expired_member_is_refused_an_hour_of_clock_is_not(folder):
    identity.issue(folder, 2, days=-1)
    identity.issue(folder, 3, days=-1 / 24)
    known = members(folder)

    assert not known.allowed(2)
    assert known.allowed(3)
    assert {row["name"]: row["state"] for row in identity.show(folder)}["node-3"] == "expired"


def test_an_authority_is_never_replaced(folder):
    with pytest.raises(ValueError, match="has an authority already"):
        identity.init(folder)


def test_the_command_line_issues_shows_and_revokes(tmp_path):
    def command(*arguments):
        return folkman("certs", *arguments, cwd=tmp_path)

    at = ["--folder", tmp_path / "ca"]
    assert "folkman certs init" in command("issue", "node-0", *at).stderr
    assert command("init", *at).returncode == 0
    assert command("issue", "node-0", "server", "--host", "192.0.2.1", *at).returncode == 0
    assert command("revoke", "node-0", *at).returncode == 0

    shown = json.loads(command("show", "--json", *at).stdout)

    assert [row["state"] for row in shown["members"]] == ["revoked", "valid"]
    assert "expected node-N or server" in command("issue", "elsewhere", *at).stderr
    assert "node-5 is no member" in command("revoke", "node-5", *at).stderr
