"""Enrolment by request: keys that never leave the board, and requests that are not a board's own."""

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from folkman.runtime import certificates, enrolment, identity
from folkman.runtime.enrolment import make_request, read_request, sign_request
from shell import folkman

BEGIN, END = (f"-----{word} CERTIFICATE REQUEST-----" for word in ("BEGIN", "END"))


@pytest.fixture
def authority(tmp_path):
    identity.init(tmp_path / "ca")
    identity.issue(tmp_path / "ca", 0)
    return tmp_path / "ca"


@pytest.fixture
def board(tmp_path):
    make_request(tmp_path / "board", "node-3", ["192.0.2.3", "pi.local"])
    return tmp_path / "board"


def forged(path, name="node-3", names=None, extra=(), signer=None, subject=None):
    """Write a request with whatever its maker likes, rightly signed; return its path."""
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    proof = (signer or signing).sign(enrolment._bound(name, key.public_key()))
    own = signing.public_key().public_bytes_raw() + proof
    oid = x509.ObjectIdentifier(enrolment.SIGNING_KEY_OID)
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        subject or certificates.subject(name)
    )
    builder = builder.add_extension(x509.UnrecognizedExtension(oid, own), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for each in extra:
        builder = builder.add_extension(each, critical=True)
    made = builder.sign(key, hashes.SHA256())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def listed(folder):
    return {row["name"]: row for row in identity.show(folder)}


def test_a_board_becomes_a_member_and_its_keys_stay_where_they_are(tmp_path, authority, board):
    for path in board.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    carried = tmp_path / "carried.csr"
    carried.write_bytes((board / "node-3.csr").read_bytes())
    assert b"PRIVATE" not in carried.read_bytes()

    request = read_request(carried)
    path = sign_request(authority, request, 90)
    for name in ("ca.crt", "members.json", "node-3.crt"):
        (board / name).write_bytes((authority / name).read_bytes())

    assert not list(authority.glob("node-3*.key"))
    own = identity.Identity(board, 3)
    own.certificate_until()  # the certificate is that of the board's key
    members = identity.Members(board / "members.json", board / "ca.crt")
    assert members.verify(3, b"content", own.sign(b"content"))
    assert request.hosts == ["192.0.2.3", "pi.local"]
    text = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", str(path)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "URI:spiffe://folkman/node-3" in text
    assert "IP Address:192.0.2.3" in text
    assert "CA:FALSE" in text


def test_the_fingerprint_is_the_sha256_that_openssl_tells(board):
    der = subprocess.run(
        ["openssl", "req", "-in", str(board / "node-3.csr"), "-outform", "DER"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-r"], input=der, capture_output=True, check=True
    ).stdout.split()[0]

    shown = read_request(board / "node-3.csr").fingerprint
    assert shown.replace(":", "").encode() == digest


def test_keys_that_are_there_are_replaced_only_when_asked(board):
    before = (board / "node-3.key").read_bytes()
    with pytest.raises(ValueError, match="would be replaced; say --anew"):
        make_request(board, "node-3", [])
    assert (board / "node-3.key").read_bytes() == before
    make_request(board, "node-3", [], anew=True)
    assert (board / "node-3.key").read_bytes() != before


ROLE = x509.UniformResourceIdentifier("spiffe://folkman/operator/eve")
REFUSED = {
    "a role as a name": ({"name": "operator-eve"}, "is not given by request"),
    "a role beside the name": ({"names": [ROLE]}, "is not given by request"),
    "another's name beside its own": ({"names": [x509.DNSName("node-0")]}, "which is another's"),
    "another's name in capitals": ({"names": [x509.DNSName("NODE-0")]}, "which is another's"),
    "the server's name": ({"names": [x509.DNSName("server")]}, "which is another's"),
    "another's identity": (
        {"names": [x509.UniformResourceIdentifier("spiffe://folkman/node-0")]},
        "expected addresses and host names",
    ),
    "an authority": ({"extra": [x509.BasicConstraints(True, 0)]}, "which no board gets"),
    "a usage": (
        {"extra": [x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CODE_SIGNING])]},
        "which no board gets",
    ),
    "a name that is no node's": ({"name": "elsewhere"}, "expected node-N or server"),
    "a name with zeros before": ({"name": "node-03"}, "expected node-N or server"),
    "a signing key that it has not": (
        {"signer": ed25519.Ed25519PrivateKey.generate()},
        "one that its maker does not have",
    ),
    "a part of an organisation": (
        {
            "subject": x509.Name(
                [
                    x509.NameAttribute(x509.NameOID.COMMON_NAME, "node-3"),
                    x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, "operator"),
                ]
            )
        },
        "expected one name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_boards_own_is_refused(case, tmp_path, authority):
    changes, text = REFUSED[case]
    before = (authority / "members.json").read_bytes()
    path = forged(tmp_path / "x.csr", **changes)

    with pytest.raises(ValueError, match=text):
        read_request(path)

    done = folkman("certs", "sign", path, "--folder", authority, "--fingerprint", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (authority / "members.json").read_bytes() == before


def test_a_proof_for_one_name_is_none_for_another(tmp_path):
    """Else a carrier could put a board's signing key under a name of its own choice."""
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    proof = signing.sign(enrolment._bound("node-3", key.public_key()))
    oid = x509.ObjectIdentifier(enrolment.SIGNING_KEY_OID)
    own = x509.UnrecognizedExtension(oid, signing.public_key().public_bytes_raw() + proof)
    builder = x509.CertificateSigningRequestBuilder().subject_name(certificates.subject("node-4"))
    made = builder.add_extension(own, critical=False).sign(key, hashes.SHA256())
    path = tmp_path / "node-4.csr"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    with pytest.raises(ValueError, match="one that its maker does not have"):
        read_request(path)


def test_a_request_with_a_flipped_bit_is_refused_or_has_another_fingerprint(tmp_path, board):
    sound = read_request(board / "node-3.csr")
    request = x509.load_pem_x509_csr((board / "node-3.csr").read_bytes())
    der = request.public_bytes(serialization.Encoding.DER)
    refused = 0
    for k in range(0, len(der), 5):
        changed = bytearray(der)
        changed[k] ^= 1
        body = base64.encodebytes(bytes(changed)).decode()
        (tmp_path / "x.csr").write_text(f"{BEGIN}\n{body}{END}\n")
        try:
            found = read_request(tmp_path / "x.csr")
        except ValueError:
            refused += 1
        else:
            assert found.fingerprint != sound.fingerprint, k

    assert refused >= len(der) // 5 - 3


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE REQUEST-----\n", b"x" * 20_000]
)
def test_what_is_no_request_is_refused(content, tmp_path):
    (tmp_path / "x.csr").write_bytes(content)
    with pytest.raises(ValueError, match=r"is none|expected at most"):
        read_request(tmp_path / "x.csr")


def test_a_request_is_signed_once(authority, board):
    request = read_request(board / "node-3.csr")
    sign_request(authority, request, 90)
    identity.revoke(authority, 3)

    with pytest.raises(ValueError, match=r"were signed before, .* for node-3"):
        sign_request(authority, request, 90, replace=True)
    assert listed(authority)["node-3"]["state"] == "revoked"


def test_the_keys_of_a_signed_request_are_not_signed_under_other_bytes(authority, board, tmp_path):
    """ECDSA signs anew each time, so the bytes and the fingerprint differ; the key does not."""
    first = read_request(board / "node-3.csr")
    sign_request(authority, first, 90)
    key = serialization.load_pem_private_key((board / "node-3.key").read_bytes(), None)
    old = x509.load_pem_x509_csr((board / "node-3.csr").read_bytes())
    builder = x509.CertificateSigningRequestBuilder().subject_name(old.subject)
    for each in old.extensions:
        builder = builder.add_extension(each.value, each.critical)
    again = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path = tmp_path / "again.csr"
    path.write_bytes(again.public_bytes(serialization.Encoding.PEM))

    second = read_request(path)
    assert second.fingerprint != first.fingerprint
    with pytest.raises(ValueError, match="were signed before"):
        sign_request(authority, second, 90, replace=True)


def test_the_name_of_another_board_is_not_given_away(authority, tmp_path):
    request = make_request(tmp_path / "eve", "node-0", [])
    key = listed(authority)["node-0"]["key"]

    with pytest.raises(ValueError, match="is a member already, under another key"):
        sign_request(authority, request, 90)
    assert listed(authority)["node-0"]["key"] == key

    sign_request(authority, request, 90, replace=True)
    assert listed(authority)["node-0"]["key"] == request.signing_key.hex()


def test_an_authority_that_has_ended_signs_nothing(tmp_path, board):
    old = tmp_path / "old"
    identity.init(old, days=-1)
    before = {path.name: path.read_bytes() for path in old.iterdir()}

    with pytest.raises(ValueError, match=r"expected an authority that is valid, .* ended"):
        sign_request(old, read_request(board / "node-3.csr"), 90)
    with pytest.raises(ValueError, match="expected an authority that is valid"):
        identity.issue(old, 1)
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_no_certificate_outlives_its_authority(tmp_path):
    identity.init(tmp_path / "ca", days=10)
    identity.issue(tmp_path / "ca", 0, days=90)
    ca = x509.load_pem_x509_certificate((tmp_path / "ca" / "ca.crt").read_bytes())
    own = x509.load_pem_x509_certificate((tmp_path / "ca" / "node-0.crt").read_bytes())

    assert own.not_valid_after_utc <= ca.not_valid_after_utc


def test_a_damaged_list_of_requests_stops_signing(authority, board):
    (authority / "requests.json").write_text("{")
    with pytest.raises(ValueError, match="says which requests were signed"):
        sign_request(authority, read_request(board / "node-3.csr"), 90)


def test_the_commands_ask_sign_and_refuse(tmp_path, authority):
    made = folkman("certs", "request", "node-3", "--folder", "b", "--json", cwd=tmp_path)
    shown = json.loads(made.stdout)
    at = ["certs", "sign", tmp_path / "b" / "node-3.csr", "--folder", authority]

    wrong = folkman(*at, "--fingerprint", shown["fingerprint"][:-1] + "x", cwd=tmp_path)
    part = folkman(*at, "--fingerprint", shown["fingerprint"][:20], cwd=tmp_path)
    nobody = folkman(*at, cwd=tmp_path)
    assert [done.returncode for done in (wrong, part, nobody)] == [2, 2, 2]
    assert "is not the one given; compare it on the board" in wrong.stderr
    assert "give what the board printed as --fingerprint" in nobody.stderr
    assert "node-3" not in listed(authority)

    spaced = shown["fingerprint"].upper().replace(":", " ")
    done = folkman(*at, "--fingerprint", spaced, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert listed(authority)["node-3"]["state"] == "valid"
    assert "ca.crt, members.json and node-3.crt" in done.stderr


def test_a_person_is_asked_to_compare(tmp_path, authority, board, monkeypatch):
    answers = iter([False, True])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _: next(answers))
    at = ["certs", "sign", board / "node-3.csr", "--folder", authority]

    assert "not signed" in folkman(*at, cwd=tmp_path).stderr
    assert "node-3" not in listed(authority)
    assert folkman(*at, cwd=tmp_path).returncode == 0
    assert "node-3" in listed(authority)


def test_keys_are_their_owners_from_the_first_byte(tmp_path):
    old = os.umask(0)
    try:
        make_request(Path(tmp_path) / "b", "node-1", [])
    finally:
        os.umask(old)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "b").glob("*.key")} == {0o600}
