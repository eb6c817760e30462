"""A dask scheduler and workers of the tests, which show each other certificates."""

import datetime
import ipaddress
import subprocess
import sys
import time
from contextlib import contextmanager


def authority(folder, name, hosts):
    """Make a certificate authority and one certificate of it; return the options that name the
    files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir()
    keys = {each: ec.generate_private_key(ec.SECP256R1()) for each in ("ca", "node")}
    names = {
        each: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {each}")])
        for each in keys
    }
    now = datetime.datetime.now(datetime.UTC)
    for each in keys:
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[each])
            .issuer_name(names["ca"])
            .public_key(keys[each].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=each == "ca", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
                ),
                critical=False,
            )
        )
        certificate = builder.sign(keys["ca"], hashes.SHA256())
        (folder / f"{each}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = (
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (folder / f"{each}.key").write_bytes(keys[each].private_bytes(*form))
    return {"ca": folder / "ca.pem", "cert": folder / "node.pem", "key": folder / "node.key"}


@contextmanager
def dask(*arguments, tls, log, prefix=()):
    """Run a dask command with certificates until the block ends."""
    files = ["--tls-ca-file", tls["ca"], "--tls-cert", tls["cert"], "--tls-key", tls["key"]]
    program = "from dask.__main__ import main; main()"
    command = [*prefix, sys.executable, "-c", program, *arguments, "--no-dashboard", *files]
    with log.open("w") as place:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=place, stderr=place, cwd=log.parent
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_line(log, text, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while text not in log.read_text():
        assert time.monotonic() < deadline, f"no '{text}' in: {log.read_text()}"
        time.sleep(0.1)
