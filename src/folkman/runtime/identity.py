"""Who a node is: a small authority, short-lived certificates, signing keys, the list of members.

    ca.crt, ca.key            the authority, EC P-256; its key stays where certificates are issued
    NAME.crt, NAME.key        for TLS: EC P-256, both usages, the name as CN, DNS name and
                              spiffe://folkman/NAME
    NAME.sign.key             Ed25519: signs each parameter and control message
    members.json              who may take part: number, name, signing key, end of validity, revoked
                              or not; signed by the authority. Nodes read it again whenever it
                              changes.

Keys are written with mode 0600, and a key that others can read is refused. Certificates begin a day
before they are made, so that a device whose clock is an hour slow can use them.
"""

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from folkman.checks import need, require
from folkman.files import write_whole
from folkman.record.json_file import Json
from folkman.runtime.codec import SERVER

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = [
    "Identity",
    "Member",
    "MemberList",
    "Members",
    "init",
    "issue",
    "name_of",
    "number_of",
    "revoke",
    "show",
]

BACKDATED = timedelta(days=1)
CLOCK_SLACK = timedelta(
    hours=2
)  # a member is not refused for a clock that is an hour wrong, ours or its maker's


def name_of(node: int) -> str:
    """Return the name of a node in certificates and key expressions."""
    return "server" if node == SERVER else f"node-{node}"


def number_of(name: str) -> int:
    """Return the number of a node called `node-3`, `3` or `server`."""
    if name == "server":
        return SERVER
    digits = name.removeprefix("node-")
    require(digits.isdigit() and int(digits) < SERVER, f"expected node-N or server, got '{name}'")
    return int(digits)


class Member(NamedTuple):
    """One line of the list of members."""

    node: int
    name: str
    key: str  # hex of the Ed25519 public key
    serial: str  # hex of the certificate's serial number
    not_after: str  # ISO 8601
    revoked: bool = False


def init(folder: Path, days: int = 3650) -> None:
    """Make an authority in `folder`; refuse to replace one."""
    require(
        not (folder / "ca.key").exists(),
        f"{folder} has an authority already; issue from it, or name a new --folder",
    )
    require(
        not folder.exists() or folder.is_dir(),
        f"expected a folder, {folder} is a file; name another --folder",
    )
    x509, ec = need("cryptography.x509"), need("cryptography.hazmat.primitives.asymmetric.ec")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("folkman authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = (
        _dated(
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key()),
            days,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write_key(folder / "ca.key", key)
    _write_certificate(
        folder / "ca.crt", builder.sign(key, need("cryptography.hazmat.primitives.hashes").SHA256())
    )
    _write_members(folder, MemberList(1, []), key)


def issue(
    folder: Path, node: int, hosts: tuple[str, ...] = ("127.0.0.1", "localhost"), days: float = 90
) -> Path:
    """Make keys and a certificate for a node and enter it in the list of members.

    It takes the place of an older entry.
    """
    serialization = need("cryptography.hazmat.primitives.serialization")
    x509, ec = need("cryptography.x509"), need("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    require(0 <= node <= SERVER, f"a node's number lies in 0 .. {SERVER}, the server's; got {node}")
    name = name_of(node)
    authority, ca = _load_authority(folder)
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    public = signing.public_key().public_bytes(*raw).hex()
    subject_names = [x509.DNSName(name), x509.UniformResourceIdentifier(f"spiffe://folkman/{name}")]
    subject_names += [_host(host) for host in hosts]
    usages = x509.oid.ExtendedKeyUsageOID
    builder = x509.CertificateBuilder().subject_name(_subject(name)).issuer_name(ca.subject)
    builder = (
        _dated(builder.public_key(key.public_key()), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([usages.SERVER_AUTH, usages.CLIENT_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName(list(dict.fromkeys(subject_names))), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    certificate = builder.sign(authority, need("cryptography.hazmat.primitives.hashes").SHA256())
    _write_key(folder / f"{name}.key", key)
    _write_key(folder / f"{name}.sign.key", signing)
    _write_certificate(folder / f"{name}.crt", certificate)
    ends = certificate.not_valid_after_utc.isoformat()
    member = Member(node, name, public, f"{certificate.serial_number:x}", ends)
    version, known = read_list(folder / "members.json", folder / "ca.crt")
    others = [each for each in known if each.node != node]
    _write_members(folder, MemberList(version + 1, [*others, member]), authority)
    return folder / f"{name}.crt"


def revoke(folder: Path, node: int) -> None:
    """Mark a member as revoked; nodes that read the list refuse it from then on."""
    authority, _ = _load_authority(folder)
    version, known = read_list(folder / "members.json", folder / "ca.crt")
    names = ", ".join(each.name for each in known) or "nobody"
    require(
        any(each.node == node for each in known), f"{name_of(node)} is no member; members: {names}"
    )
    marked = [m._replace(revoked=True) if m.node == node else m for m in known]
    _write_members(folder, MemberList(version + 1, marked), authority)


def show(folder: Path) -> list[Json]:
    """Return the members with how they stand."""
    now = datetime.now(UTC)
    rows = []
    for member in read_members(folder / "members.json", folder / "ca.crt"):
        ended = datetime.fromisoformat(member.not_after) < now
        state = "revoked" if member.revoked else "expired" if ended else "valid"
        rows.append(member._asdict() | {"state": state})
    return rows


class MemberList(NamedTuple):
    """A list that the authority signed."""

    version: int  # grows with every change; 0: of an earlier folkman, which had none
    members: list[Member]


def read_members(path: Path, ca_path: Path) -> list[Member]:
    """Return the members of a list that the authority signed, or refuse it."""
    return read_list(path, ca_path).members


def read_list(path: Path, ca_path: Path) -> MemberList:
    """Read a list of members that the authority signed, or refuse it."""
    x509, ec = need("cryptography.x509"), need("cryptography.hazmat.primitives.asymmetric.ec")
    kind = ec.ECDSA(need("cryptography.hazmat.primitives.hashes").SHA256())
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        members = [Member(**entry) for entry in content["members"]]
        authority = x509.load_pem_x509_certificate(ca_path.read_bytes()).public_key()
        version = content.get("version", 0)
        if version:
            signature = bytes.fromhex(content["version_signature"])
            authority.verify(signature, _canonical(members, version), kind)
        else:
            authority.verify(bytes.fromhex(content["signature"]), _canonical(members), kind)
    except FileNotFoundError as error:
        raise ValueError(
            f"expected an authority, there is no {error.filename}; make one: folkman certs init"
        ) from None
    except Exception as error:  # whatever is wrong with the file, it is not the authority's
        raise ValueError(
            f"{path} is not a list that {ca_path} signed ({type(error).__name__}); copy it anew"
        ) from None
    return MemberList(version, members)


class Identity:
    """A node's own keys and certificate."""

    def __init__(self, folder: Path, node: int) -> None:
        serialization = need("cryptography.hazmat.primitives.serialization")
        self.node, self.name, self.folder = node, name_of(node), folder
        self.certificate, self.key = folder / f"{self.name}.crt", folder / f"{self.name}.key"
        self.ca = folder / "ca.crt"
        for path in (self.key, folder / f"{self.name}.sign.key"):
            require(
                path.is_file(),
                f"expected a key, there is no {path}; make it: folkman certs issue {node}",
            )
            mode = path.stat().st_mode & 0o777
            require(
                mode & 0o077 == 0, f"{path} can be read by others (mode {mode:o}); chmod 600 {path}"
            )
        self._signing = serialization.load_pem_private_key(
            (folder / f"{self.name}.sign.key").read_bytes(), None
        )

    def certificate_until(self) -> datetime:
        """Return when the certificate ends.

        Refuse one that has ended, is not there, or is not that of the key.
        """
        anew = f"make it anew: folkman certs issue {self.name}"
        require(
            self.certificate.is_file(),
            f"expected a certificate, there is no {self.certificate}; {anew}",
        )
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_cert_chain(self.certificate, self.key)
            found = need("cryptography.x509").load_pem_x509_certificate(
                self.certificate.read_bytes()
            )
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(
                f"{self.certificate} is not the certificate of {self.key} ({error}); {anew}"
            ) from None
        ends = found.not_valid_after_utc
        require(
            datetime.now(UTC) < ends + CLOCK_SLACK,
            f"{self.certificate} ended {ends:%Y-%m-%d %H:%M}; {anew}",
        )
        return ends

    def sign(self, content: bytes) -> bytes:
        """Return 64 bytes."""
        return self._signing.sign(content)


class Members:
    """The list of members, read again when the file changes.

    A list that is damaged leaves the last one in force, and so does one with a lower version than
    `least` or than was read before: who is revoked would be a member again.
    """

    def __init__(self, path: Path, ca: Path, least: int = 0) -> None:
        self._path, self._ca = path, ca
        self.version = least
        self._remember: Callable[[int], None] | None = None
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._keys: dict[int, Ed25519PublicKey] = {}
        self.members: dict[int, Member] = {}
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; tell whether it did.

        A list that is not the authority's, or is older than one before, is a ValueError.
        """
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return False
        version, found = read_list(self._path, self._ca)
        require(
            version >= self.version,
            f"{self._path} has version {version}, this node has seen version {self.version}: an "
            "older list was put back, which may hold revoked members; copy the newest one",
        )
        ed25519 = need("cryptography.hazmat.primitives.asymmetric.ed25519")
        keys = {
            m.node: ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(m.key)) for m in found
        }
        with self._lock:
            self._keys, self.members = keys, {m.node: m for m in found}
        self.version = version
        if self._remember is not None:
            self._remember(version)
        self._stamp = stamp  # last: a version that the disk did not take is noted again
        return True

    def remember(self, note: Callable[[int], None]) -> None:
        """Note the version of the list now, and of each one that is taken over from now on."""
        self._remember = note
        note(self.version)

    def names(self) -> list[str]:
        """Return the names of those who may take part."""
        return [member.name for number, member in self.members.items() if self.allowed(number)]

    def allowed(self, node: int) -> bool:
        """Tell whether a node may take part now."""
        member = self.members.get(node)
        if member is None or member.revoked:
            return False
        now = datetime.fromtimestamp(time.time(), UTC)
        return now < datetime.fromisoformat(member.not_after) + CLOCK_SLACK

    def is_current(self, node: int, serial: str) -> bool:
        """Return whether a certificate is the one last issued to a node.

        An older one, stolen perhaps, is not.
        """
        member = self.members.get(node)
        return member is not None and int(serial, 16) == int(member.serial, 16)

    def verify(self, node: int, content: bytes, signature: bytes) -> bool:
        """Tell whether `signature` of `content` is that of a member."""
        with self._lock:
            key = self._keys.get(node)
        if key is None or not self.allowed(node):
            return False
        try:
            key.verify(signature, content)
        except need("cryptography.exceptions").InvalidSignature:
            return False
        return True

    def node_called(self, name: str) -> int | None:
        """Return the number of the member of that name, if it may take part."""
        found = next((m.node for m in self.members.values() if m.name == name), None)
        return found if found is not None and self.allowed(found) else None


def _subject(name: str) -> "x509.Name":
    x509 = need("cryptography.x509")
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host(host: str) -> "x509.GeneralName":
    x509 = need("cryptography.x509")
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        require(
            bool(re.match(r"^[A-Za-z0-9.-]{1,253}$", host)),
            f"expected a host name or address, got {host!r}",
        )
        return x509.DNSName(host)


def _dated(builder: "x509.CertificateBuilder", days: float) -> "x509.CertificateBuilder":
    now = datetime.now(UTC)
    x509 = need("cryptography.x509")
    begins = min(
        now - BACKDATED, now + timedelta(days=days) - BACKDATED
    )  # one that has expired is made in tests
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + timedelta(days=days))
    )


def _load_authority(folder: Path) -> "tuple[EllipticCurvePrivateKey, x509.Certificate]":
    serialization, x509 = (
        need("cryptography.hazmat.primitives.serialization"),
        need("cryptography.x509"),
    )
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return key, x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except FileNotFoundError as error:
        raise ValueError(
            f"expected an authority, there is no {error.filename}; make one: folkman certs init"
        ) from None


def _canonical(members: list[Member], version: int = 0) -> bytes:
    table = [m._asdict() for m in members]
    content = {"members": table, "version": version} if version else table
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _write_members(folder: Path, listed: MemberList, authority: "EllipticCurvePrivateKey") -> None:
    """Write a list; nodes of an earlier folkman look at `signature` alone."""
    ec, hashes = (
        need("cryptography.hazmat.primitives.asymmetric.ec"),
        need("cryptography.hazmat.primitives.hashes"),
    )
    path, version, members = folder / "members.json", listed.version, sorted(listed.members)
    kind = ec.ECDSA(hashes.SHA256())
    content = {
        "version": version,
        "members": [m._asdict() for m in members],
        "signature": authority.sign(_canonical(members), kind).hex(),
        "version_signature": authority.sign(_canonical(members, version), kind).hex(),
    }
    text = json.dumps(content, indent=2) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def _write_key(path: Path, key: "EllipticCurvePrivateKey | Ed25519PrivateKey") -> None:
    """Write a private key that only its owner can read, from its first byte on."""
    serialization = need("cryptography.hazmat.primitives.serialization")
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    def write(part: Path) -> None:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)

    write_whole(path, write)


def _write_certificate(path: Path, certificate: "x509.Certificate") -> None:
    pem = certificate.public_bytes(
        need("cryptography.hazmat.primitives.serialization").Encoding.PEM
    )
    write_whole(path, lambda part: part.write_bytes(pem))
