"""Who a node is: a small authority, short-lived certificates, signing keys, the list of members.

    ca.crt, ca.key            the authority, EC P-256; its key stays where certificates are issued
    NAME.crt, NAME.key        for TLS: EC P-256, both usages, the name as CN, DNS name and
                              spiffe://folkman/NAME
    NAME.sign.key             Ed25519: signs each parameter and control message
    members.json              who may take part: number, name, signing key, end of validity, revoked
                              or not; and which operators may look at nodes and stop them; signed by
                              the authority. Nodes read it again whenever it changes.

How certificates are made is in `folkman.runtime.certificates`, how a board asks for one in
`folkman.runtime.enrolment`.

Keys are written with mode 0600, and a key that others can read is refused. Certificates begin a day
before they are made, so that a device whose clock is an hour slow can use them.
"""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from folkman.checks import need, require
from folkman.files import write_whole
from folkman.record.json_file import Json
from folkman.runtime.codec import SERVER

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "Identity",
    "Member",
    "MemberList",
    "Members",
    "Operator",
    "init",
    "issue",
    "name_of",
    "number_of",
    "revoke",
    "show",
]

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


class Operator(NamedTuple):
    """One line of the list of operators."""

    name: str
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
    from folkman.runtime.certificates import make_authority  # here: a node makes none

    need("cryptography.x509")
    folder.mkdir(parents=True, exist_ok=True)
    write_list(folder, MemberList(1, []), make_authority(folder, days).key)


def issue(
    folder: Path, node: int, hosts: tuple[str, ...] = ("127.0.0.1", "localhost"), days: float = 90
) -> Path:
    """Make keys and a certificate for a node and enter it in the list of members.

    It takes the place of an older entry.
    """
    from folkman.runtime import certificates

    ec = need("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    require(0 <= node <= SERVER, f"a node's number lies in 0 .. {SERVER}, the server's; got {node}")
    name = name_of(node)
    authority = certificates.load_authority(folder)
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    certificate = certificates.certificate_of_node(authority, key.public_key(), name, hosts, days)
    certificates.write_key(folder / f"{name}.key", key)
    certificates.write_key(folder / f"{name}.sign.key", signing)
    certificates.write_certificate(folder / f"{name}.crt", certificate)
    enter(folder, node, signing.public_key().public_bytes_raw(), certificate)
    return folder / f"{name}.crt"


def enter(folder: Path, node: int, signing_key: bytes, certificate: "x509.Certificate") -> None:
    """Enter a node in the list of members, in the place of an older entry."""
    from folkman.runtime.certificates import load_authority

    serial, ends = f"{certificate.serial_number:x}", certificate.not_valid_after_utc.isoformat()
    member = Member(node, name_of(node), signing_key.hex(), serial, ends)
    listed = read_list(folder / "members.json", folder / "ca.crt")
    others = [each for each in listed.members if each.node != node]
    changed = listed._replace(version=listed.version + 1, members=[*others, member])
    write_list(folder, changed, load_authority(folder).key)


def revoke(folder: Path, node: int) -> None:
    """Mark a member as revoked; nodes that read the list refuse it from then on."""
    from folkman.runtime.certificates import load_authority

    listed = read_list(folder / "members.json", folder / "ca.crt")
    names = ", ".join(each.name for each in listed.members) or "nobody"
    require(
        any(each.node == node for each in listed.members),
        f"{name_of(node)} is no member; members: {names}",
    )
    marked = [m._replace(revoked=True) if m.node == node else m for m in listed.members]
    changed = listed._replace(version=listed.version + 1, members=marked)
    write_list(folder, changed, load_authority(folder).key)


def show(folder: Path) -> list[Json]:
    """Return the members with how they stand."""
    return standings(read_list(folder / "members.json", folder / "ca.crt").members)


def standings(listed: "Iterable[Member | Operator]") -> list[Json]:
    """Return lines of a list with how each stands."""
    now = datetime.now(UTC)
    rows = []
    for each in listed:
        ended = datetime.fromisoformat(each.not_after) < now
        state = "revoked" if each.revoked else "expired" if ended else "valid"
        rows.append(each._asdict() | {"state": state})
    return rows


class MemberList(NamedTuple):
    """A list that the authority signed."""

    version: int  # grows with every change; 0: of an earlier folkman, which had none
    members: list[Member]
    operators: list[Operator] = []  # noqa: RUF012 - never changed in place


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
            operators = _read_operators(content, version, lambda s, c: authority.verify(s, c, kind))
        else:
            operators = []
            authority.verify(bytes.fromhex(content["signature"]), _canonical(members), kind)
    except FileNotFoundError as error:
        raise ValueError(
            f"expected an authority, there is no {error.filename}; make one: folkman certs init"
        ) from None
    except Exception as error:  # whatever is wrong with the file, it is not the authority's
        raise ValueError(
            f"{path} is not a list that {ca_path} signed ({type(error).__name__}); copy it anew"
        ) from None
    return MemberList(version, members, operators)


def _read_operators(
    content: Json, version: int, verify: Callable[[bytes, bytes], None]
) -> list[Operator]:
    """Return the operators of a list, under the authority's signature and the list's version.

    A list of an earlier folkman has none, and lets no operator in.
    """
    if "operators" not in content:
        return []
    operators = [Operator(**entry) for entry in content["operators"]]
    verify(bytes.fromhex(content["operators_signature"]), _canonical_operators(operators, version))
    return operators


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
        self.operators: dict[str, Operator] = {}
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; tell whether it did.

        A list that is not the authority's, or is older than one before, is a ValueError.
        """
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return False
        version, found, operators = read_list(self._path, self._ca)
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
        self.operators = {each.name: each for each in operators}
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
        return not _has_ended(member.not_after)

    def why_not_operator(self, name: str, serial: str) -> str:
        """Return why a certificate is not one of an operator that may act now; empty: it is."""
        known = self.operators.get(name)
        if known is None:
            return f"there is no operator '{name}' in the list of members"
        if known.revoked:
            return f"operator '{name}' was revoked"
        if int(serial, 16) != int(known.serial, 16):
            return f"the certificate of operator '{name}' is not the one last issued"
        if _has_ended(known.not_after):
            return f"the certificate of operator '{name}' ended {known.not_after}"
        return ""

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


def _canonical(members: list[Member], version: int = 0) -> bytes:
    table = [m._asdict() for m in members]
    content = {"members": table, "version": version} if version else table
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _canonical_operators(operators: list[Operator], version: int) -> bytes:
    content = {"operators": [each._asdict() for each in operators], "version": version}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _has_ended(not_after: str) -> bool:
    return time.time() >= _ends_s(not_after)


@lru_cache(maxsize=1024)
def _ends_s(not_after: str) -> float:
    """Return when a certificate has ended for sure; asked for every message, so it is kept."""
    return (datetime.fromisoformat(not_after) + CLOCK_SLACK).timestamp()


def write_list(folder: Path, listed: MemberList, authority: "EllipticCurvePrivateKey") -> None:
    """Write a list under three signatures.

    Nodes of earlier versions of folkman look at `signature`, or at `version_signature`, alone.
    """
    ec, hashes = (
        need("cryptography.hazmat.primitives.asymmetric.ec"),
        need("cryptography.hazmat.primitives.hashes"),
    )
    version, members, operators = listed.version, sorted(listed.members), sorted(listed.operators)

    def signed(content: bytes) -> str:
        return authority.sign(content, ec.ECDSA(hashes.SHA256())).hex()

    content = {
        "version": version,
        "members": [m._asdict() for m in members],
        "operators": [each._asdict() for each in operators],
        "signature": signed(_canonical(members)),
        "version_signature": signed(_canonical(members, version)),
        "operators_signature": signed(_canonical_operators(operators, version)),
    }
    text = json.dumps(content, indent=2) + "\n"
    write_whole(folder / "members.json", lambda part: part.write_text(text, encoding="utf-8"))
