"""How a board becomes a member while its keys stay on it: a request, a fingerprint, a signature.

    board       NAME.key, NAME.sign.key, NAME.csr     made there; the keys never leave it
    authority   NAME.crt, a line of members.json      if a person has compared the fingerprint

A request is a PKCS#10 certificate request for one name, under the key for TLS. One extension holds
the key for signing messages, and that key's own signature over the name and the key for TLS: who
asks has both. The authority copies nothing from a request but the two public keys and the hosts.

The fingerprint is the SHA-256 of the request's bytes (DER). Whoever carries the request can change
it, and the fingerprint with it; so a person compares what the board shows with what the authority
shows. A request is signed once: the keys of those that were signed are in `requests.json`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from folkman.checks import need, require
from folkman.files import write_whole
from folkman.record.json_file import Json, now, write_json
from folkman.runtime import certificates
from folkman.runtime.identity import Member, enter, name_of, number_of, read_list

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

__all__ = ["Request", "fingerprint_matches", "make_request", "read_request", "sign_request"]

SIGNING_KEY_OID = "2.25.232714570483297417253482530374061512067"
"""Of the extension with the signing key; an arc that nobody has to register (X.667)."""
MOST_BYTES = 16_384
"""A request of a board has less than 1 KiB."""
OPERATOR = "an operator's role is not given by request; make it: folkman certs operator NAME"


class Request(NamedTuple):
    """What a board asks for, checked."""

    name: str
    hosts: list[str]
    key: "EllipticCurvePublicKey"  # for TLS
    signing_key: bytes  # Ed25519, 32 bytes
    fingerprint: str

    def keys(self) -> set[str]:
        """Return what its two keys are known by, whatever the bytes around them are."""
        return {certificates.fingerprint(each) for each in (_spki(self.key), self.signing_key)}


def make_request(folder: Path, name: str, hosts: Sequence[str], *, anew: bool = False) -> Request:
    """Make the keys of a board where it is, and write its request beside them."""
    x509, ec = need("cryptography.x509"), need("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = need("cryptography.hazmat.primitives.serialization")
    name = name_of(number_of(name))
    keys = folder / f"{name}.key", folder / f"{name}.sign.key"
    there = [str(path) for path in keys if path.exists()]
    require(
        anew or not there,
        f"{' and '.join(there)} would be replaced; say --anew if they shall be, or name another "
        "--folder",
    )
    require(
        not folder.exists() or folder.is_dir(),
        f"expected a folder, {folder} is a file; name another --folder",
    )
    names = [x509.DNSName(name), *map(certificates.host_name, hosts)]
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    proof = signing.sign(_bound(name, key.public_key()))
    own = signing.public_key().public_bytes_raw() + proof
    oid = x509.ObjectIdentifier(SIGNING_KEY_OID)
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(certificates.subject(name))
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), critical=False)
        .add_extension(x509.UnrecognizedExtension(oid, own), critical=False)
    )
    made = builder.sign(key, need("cryptography.hazmat.primitives.hashes").SHA256())
    folder.mkdir(parents=True, exist_ok=True)
    for path, each in zip(keys, (key, signing), strict=True):
        certificates.write_key(path, each)
    pem = made.public_bytes(serialization.Encoding.PEM)
    write_whole(folder / f"{name}.csr", lambda part: part.write_bytes(pem))
    return read_request(folder / f"{name}.csr")


def read_request(path: Path) -> Request:
    """Read a request and check all that it says; refuse what is not a board's own."""
    x509, serialization = (
        need("cryptography.x509"),
        need("cryptography.hazmat.primitives.serialization"),
    )
    data = path.read_bytes()
    require(len(data) <= MOST_BYTES, f"{path} has {len(data)} bytes, expected at most {MOST_BYTES}")
    try:
        found = x509.load_pem_x509_csr(data)
        valid, extensions = found.is_signature_valid, list(found.extensions)
    except Exception as error:  # whatever is wrong with the bytes, it is no request
        raise ValueError(
            f"expected a request that folkman certs request made, {path} is none "
            f"({type(error).__name__}); copy it anew"
        ) from None
    require(valid, f"{path} is not signed by the key in it; copy it anew from the board")
    name = _name(found.subject, path)
    names, signing = _asked(extensions, path)
    _check_key(found, path)
    key: Any = found.public_key()
    hosts = _hosts(names, name, path)
    own = _proven(signing, name, key, path)
    der = found.public_bytes(serialization.Encoding.DER)
    return Request(name, hosts, key, own, certificates.fingerprint(der))


def fingerprint_matches(request: Request, given: str) -> bool:
    """Tell whether somebody's fingerprint is that of a request: all 64 digits, in any writing."""
    plain = "".join(given.split()).replace(":", "").lower()
    return plain == request.fingerprint.replace(":", "")


def check_new(folder: Path, request: Request, *, replace: bool) -> None:
    """Refuse a request that was signed before, and one for the name of another board."""
    before = next((each for each in _signed(folder) if request.keys() & set(each["keys"])), {})
    require(
        not before,
        f"the keys of this request of {request.name} were signed before, {before.get('time')} for "
        f"{before.get('name')}; a request is signed once: on the board, "
        f"folkman certs request {request.name} --anew",
    )
    known = read_list(folder / "members.json", folder / "ca.crt").members
    taken: Member | None = next((m for m in known if m.name == request.name), None)
    require(
        taken is None or replace,
        f"{request.name} is a member already, under another key; if the board was set up anew, say "
        "--replace, and the old certificate ends. If not, somebody asks for another's name",
    )


def sign_request(folder: Path, request: Request, days: float, *, replace: bool = False) -> Path:
    """Write the certificate that a request asks for, and enter the board as a member."""
    authority = certificates.load_authority(folder)
    check_new(folder, request, replace=replace)
    certificate = certificates.certificate_of_node(
        authority, request.key, request.name, request.hosts, days
    )
    serial = f"{certificate.serial_number:x}"
    entry = {"name": request.name, "fingerprint": request.fingerprint, "serial": serial}
    entry |= {"keys": sorted(request.keys()), "time": now()}
    # first: a request that is noted and not signed is made anew, one signed twice is a fault
    write_json(folder / "requests.json", {"signed": [*_signed(folder), entry]})
    path = folder / f"{request.name}.crt"
    certificates.write_certificate(path, certificate)
    enter(folder, number_of(request.name), request.signing_key, certificate)
    return path


def _signed(folder: Path) -> list[Json]:
    """Return the requests that were signed; refuse a file that is damaged."""
    path = folder / "requests.json"
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["signed"]
        return [each | {"keys": list(each["keys"])} for each in found]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is damaged, and says which requests were signed; put back a copy of it"
        ) from None


def _name(subject: "x509.Name", path: Path) -> str:
    """Return the one name of a request's subject: that of a node."""
    parts = [(each.oid.dotted_string, str(each.value)) for each in subject]
    common = [value for oid, value in parts if oid == "2.5.4.3"]
    require(
        len(parts) == len(common) == 1,
        f"expected one name in {path}, got {[value for _, value in parts]}; "
        + (OPERATOR if "operator" in str(parts) else "make it with folkman certs request"),
    )
    require(not common[0].startswith("operator"), f"{path} asks to be '{common[0]}': {OPERATOR}")
    require(
        common[0] == name_of(number_of(common[0])), f"expected node-N or server, got '{common[0]}'"
    )
    return common[0]


def _asked(
    extensions: "list[x509.Extension[Any]]", path: Path
) -> "tuple[list[x509.GeneralName], bytes]":
    """Return the names and the signing key that a request brings; refuse whatever else it asks."""
    x509 = need("cryptography.x509")
    names: list[Any] = []
    signing = b""
    for each in extensions:
        if isinstance(each.value, x509.SubjectAlternativeName):
            names = list(each.value)
        elif each.oid.dotted_string == SIGNING_KEY_OID:
            signing = each.value.value
        else:
            raise ValueError(
                f"{path} asks for {each.oid._name} ({each.oid.dotted_string}), which no board gets;"
                " make it with folkman certs request"
            )
    return names, signing


def _hosts(names: "list[x509.GeneralName]", own: str, path: Path) -> list[str]:
    """Return the hosts among the names; refuse a role and the name of another node."""
    x509 = need("cryptography.x509")
    hosts = []
    for each in names:
        if isinstance(each, x509.IPAddress):
            hosts.append(str(each.value))
            continue
        text = str(each.value)
        require("folkman/operator" not in text, f"{path} asks to be '{text}': {OPERATOR}")
        require(
            isinstance(each, x509.DNSName),
            f"expected addresses and host names in {path}, got '{text}'",
        )
        if text == own:
            continue
        require(
            not _is_name_of_somebody(text),
            f"{path} is of {own} and asks for the name '{text}' too, which is another's",
        )
        certificates.host_name(text)
        hosts.append(text)
    return hosts


def _is_name_of_somebody(text: str) -> bool:
    try:
        number_of(text.lower())
    except ValueError:
        return text.lower().startswith("operator")
    return True


def _check_key(found: "x509.CertificateSigningRequest", path: Path) -> None:
    ec: Any = need("cryptography.hazmat.primitives.asymmetric.ec")
    key: Any = found.public_key()
    fits = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    require(fits, f"expected a key of P-256 in {path}; make it with folkman certs request")


def _proven(signing: bytes, name: str, key: "EllipticCurvePublicKey", path: Path) -> bytes:
    """Return the signing key of a request, if who asks has it."""
    ed25519 = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    own, proof = signing[:32], signing[32:]
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(own).verify(proof, _bound(name, key))
    except (ValueError, need("cryptography.exceptions").InvalidSignature):
        raise ValueError(
            f"{path} brings no signing key, or one that its maker does not have; make it with "
            "folkman certs request"
        ) from None
    return own


def _bound(name: str, key: "EllipticCurvePublicKey") -> bytes:
    """Return what the signing key signs in a request."""
    return b"folkman request 1\n" + name.encode() + b"\n" + _spki(key)


def _spki(key: "EllipticCurvePublicKey") -> bytes:
    serialization = need("cryptography.hazmat.primitives.serialization")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)
