"""Operators: people who look at the nodes of a cluster and stop them, each under a certificate.

    operator-NAME.crt, operator-NAME.key     for TLS, as a client alone; the role is the URI
                                             spiffe://folkman/operator/NAME

An operator is also a line of `members.json`, so that it is revoked as a member is. A node lets one
in if both say so: a certificate of the authority with the role, and the list. A node's own
certificate has no role, and an operator's has no signing key: it can send no parameters.
"""

import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from folkman.checks import need, require
from folkman.runtime.certificates import (
    certificate_of_operator,
    load_authority,
    write_certificate,
    write_key,
)
from folkman.runtime.identity import Operator, read_list, write_list

__all__ = [
    "ROLE",
    "OperatorFiles",
    "check_name",
    "make_operator",
    "operator_in",
    "revoke_operator",
    "role_of",
]

ROLE = "spiffe://folkman/operator/"
NAMES = re.compile("[a-z0-9][a-z0-9-]{0,31}")


class OperatorFiles(NamedTuple):
    """Where an operator's own certificate and key are, and the authority's."""

    name: str
    certificate: Path
    key: Path
    ca: Path
    members: Path

    def context(self) -> ssl.SSLContext:
        """Return the client's side of TLS 1.3 under this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_operator(folder: Path, name: str, days: float = 90) -> Path:
    """Make a key and a certificate for an operator, and enter it in the list of members.

    It takes the place of an older certificate of that operator.
    """
    check_name(name)
    ec = need("cryptography.hazmat.primitives.asymmetric.ec")
    authority = load_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = certificate_of_operator(authority, key.public_key(), name, days)
    files = _files(folder, name)
    write_key(files.key, key)
    write_certificate(files.certificate, certificate)
    ends = certificate.not_valid_after_utc.isoformat()
    listed = read_list(files.members, files.ca)
    others = [each for each in listed.operators if each.name != name]
    entry = Operator(name, f"{certificate.serial_number:x}", ends)
    changed = listed._replace(version=listed.version + 1, operators=[*others, entry])
    write_list(folder, changed, authority.key)
    return files.certificate


def revoke_operator(folder: Path, name: str) -> None:
    """Mark an operator as revoked; nodes that read the list refuse it from then on."""
    listed = read_list(folder / "members.json", folder / "ca.crt")
    names = [each.name for each in listed.operators]
    require(
        name in names, f"there is no operator '{name}'; operators: {', '.join(names) or 'nobody'}"
    )
    marked = [e._replace(revoked=True) if e.name == name else e for e in listed.operators]
    changed = listed._replace(version=listed.version + 1, operators=marked)
    write_list(folder, changed, load_authority(folder).key)


def operator_in(folder: Path, name: str | None = None) -> OperatorFiles:
    """Return the files of an operator; of the only one of a folder if none is named."""
    found = sorted(each.stem.removeprefix("operator-") for each in folder.glob("operator-*.key"))
    require(
        bool(found),
        f"expected an operator's key, there is none in {folder}; make one: folkman certs operator "
        f"NAME --folder {folder}",
    )
    require(
        name is not None or len(found) == 1,
        f"{folder} has the keys of {', '.join(found)}; choose one with --as",
    )
    chosen = name if name is not None else found[0]
    require(chosen in found, f"{folder} has no key of operator '{chosen}'; it has {found}")
    files = _files(folder, chosen)
    mode = files.key.stat().st_mode & 0o777
    require(
        mode & 0o077 == 0,
        f"{files.key} can be read by others (mode {mode:o}); chmod 600 {files.key}",
    )
    for path in (files.certificate, files.ca, files.members):
        require(path.is_file(), f"expected {path}, there is no such file; copy it here")
    pem = files.certificate.read_bytes()
    ends = need("cryptography.x509").load_pem_x509_certificate(pem).not_valid_after_utc
    require(
        datetime.now(UTC) < ends,
        f"{files.certificate} ended {ends:%Y-%m-%d %H:%M}; make it anew: folkman certs operator "
        f"{chosen} --folder {folder}",
    )
    return files


def role_of(shown: "dict[str, Any]") -> str:
    """Return the name of the operator whose certificate ssl shows; empty of any other.

    Exactly one URI is in a certificate of the authority, so a second one is refused.
    """
    names: Sequence[tuple[str, str]] = shown.get("subjectAltName", ())
    uris = [value for kind, value in names if kind == "URI"]
    if len(uris) != 1 or not uris[0].startswith(ROLE):
        return ""
    name = uris[0].removeprefix(ROLE)
    return name if NAMES.fullmatch(name) else ""


def _files(folder: Path, name: str) -> OperatorFiles:
    own = folder / f"operator-{name}"
    certificate, key = own.with_suffix(".crt"), own.with_suffix(".key")
    return OperatorFiles(name, certificate, key, folder / "ca.crt", folder / "members.json")


def check_name(name: str) -> None:
    """Refuse what is no name of an operator."""
    require(
        NAMES.fullmatch(name) is not None,
        "an operator's name is of a-z, 0-9 and '-', begins with a letter or digit and has at most "
        f"32 signs; got {name!r}",
    )
