"""How an authority makes certificates and where keys are written; nodes never need this file.

A certificate says who somebody is by a URI, and what it may do by its usages:

    spiffe://folkman/node-3              a member: dials and is dialled (client and server)
    spiffe://folkman/operator/NAME       an operator: dials nodes' operator doors (client alone)

Nothing of a certificate but the public key is ever copied from what somebody asks for.
"""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from folkman.checks import need, require
from folkman.files import write_whole

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Authority", "certificate_of_node", "certificate_of_operator", "fingerprint"]
__all__ += ["host_name", "load_authority", "make_authority", "subject"]
__all__ += ["write_certificate", "write_key", "write_owned"]

BACKDATED = timedelta(days=1)


class Authority(NamedTuple):
    """Who issues: its key and its own certificate."""

    key: "EllipticCurvePrivateKey"
    certificate: "x509.Certificate"


def make_authority(folder: Path, days: int) -> Authority:
    """Make the key and the certificate of a new authority, and write both."""
    x509, ec = need("cryptography.x509"), need("cryptography.hazmat.primitives.asymmetric.ec")
    key = ec.generate_private_key(ec.SECP256R1())
    name = subject("folkman authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    ends = datetime.now(UTC) + timedelta(days=days)
    blank = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = (
        _dated(blank.public_key(key.public_key()), ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, need("cryptography.hazmat.primitives.hashes").SHA256())
    write_key(folder / "ca.key", key)
    write_certificate(folder / "ca.crt", certificate)
    return Authority(key, certificate)


def load_authority(folder: Path) -> Authority:
    """Read the authority of a folder; refuse one that has ended, whose work nobody would take."""
    serialization, x509 = (
        need("cryptography.hazmat.primitives.serialization"),
        need("cryptography.x509"),
    )
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        found = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except FileNotFoundError as error:
        raise ValueError(
            f"expected an authority, there is no {error.filename}; make one: folkman certs init"
        ) from None
    ends = found.not_valid_after_utc
    require(
        datetime.now(UTC) < ends,
        f"expected an authority that is valid, {folder / 'ca.crt'} ended {ends:%Y-%m-%d %H:%M}; "
        "make a new one with folkman certs init --folder NEW, and issue all certificates from it",
    )
    return Authority(key, found)


def certificate_of_node(
    authority: Authority,
    key: "EllipticCurvePublicKey",
    name: str,
    hosts: Sequence[str],
    days: float,
) -> "x509.Certificate":
    """Return a certificate under which a node dials and is dialled."""
    x509 = need("cryptography.x509")
    usages = x509.oid.ExtendedKeyUsageOID
    names = [x509.DNSName(name), x509.UniformResourceIdentifier(f"spiffe://folkman/{name}")]
    names += [host_name(host) for host in hosts]
    both = [usages.SERVER_AUTH, usages.CLIENT_AUTH]
    return _issued(authority, key, subject(name), names, both, days)


def certificate_of_operator(
    authority: Authority, key: "EllipticCurvePublicKey", name: str, days: float
) -> "x509.Certificate":
    """Return a certificate of an operator: it dials, and nobody can be dialled under it."""
    x509 = need("cryptography.x509")
    role = x509.UniformResourceIdentifier(f"spiffe://folkman/operator/{name}")
    usage = [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issued(authority, key, subject(f"operator-{name}"), [role], usage, days)


def _issued(
    authority: Authority,
    key: "EllipticCurvePublicKey",
    whose: "x509.Name",
    names: "Sequence[x509.GeneralName]",
    usages: "Sequence[x509.ObjectIdentifier]",
    days: float,
) -> "x509.Certificate":
    """Return a signed certificate that ends with its authority at the latest."""
    x509 = need("cryptography.x509")
    issuer = authority.certificate
    ends = min(datetime.now(UTC) + timedelta(days=days), issuer.not_valid_after_utc)
    blank = x509.CertificateBuilder().subject_name(whose).issuer_name(issuer.subject)
    builder = (
        _dated(blank.public_key(key), ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return builder.sign(authority.key, need("cryptography.hazmat.primitives.hashes").SHA256())


def _dated(builder: "x509.CertificateBuilder", ends: datetime) -> "x509.CertificateBuilder":
    """Let a certificate begin a day early, for boards whose clocks are slow."""
    begins = min(datetime.now(UTC), ends) - BACKDATED  # one that has expired is made in tests
    serial = need("cryptography.x509").random_serial_number()
    return builder.serial_number(serial).not_valid_before(begins).not_valid_after(ends)


def subject(name: str) -> "x509.Name":
    """Return the name of somebody as certificates hold it."""
    x509 = need("cryptography.x509")
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def host_name(host: str) -> "x509.GeneralName":
    """Return an address or a name as certificates hold it, or refuse it."""
    x509 = need("cryptography.x509")
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        require(
            bool(re.match(r"^[A-Za-z0-9.-]{1,253}$", host)),
            f"expected a host name or address, got {host!r}",
        )
        return x509.DNSName(host)


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of bytes as people compare it: 32 pairs of digits."""
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    return ":".join(digest[k : k + 2] for k in range(0, 64, 2))


def write_owned(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""

    def write(part: Path) -> None:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)

    write_whole(path, write)


def write_key(path: Path, key: "EllipticCurvePrivateKey | Ed25519PrivateKey") -> None:
    """Write a private key for its owner's eyes alone."""
    serialization = need("cryptography.hazmat.primitives.serialization")
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_owned(path, pem)


def write_certificate(path: Path, certificate: "x509.Certificate") -> None:
    """Write a certificate, which anybody may read."""
    pem = certificate.public_bytes(
        need("cryptography.hazmat.primitives.serialization").Encoding.PEM
    )
    write_whole(path, lambda part: part.write_bytes(pem))
