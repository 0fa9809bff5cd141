"""A self-signed certificate for test servers."""

import ssl
import subprocess
from pathlib import Path


def certificate(folder: Path, names: str = "DNS:localhost") -> tuple[Path, Path]:
    """Make a certificate; return it and its key.

    Args:
        names: its subjects, as for openssl: ``DNS:localhost,IP:127.0.0.1``.
    """
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key)]
    command += ["-out", str(cert), "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def serving(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
