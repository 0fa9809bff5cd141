"""A server that speaks TLS: whose certificates are taken, and which one the client shows."""

import ssl

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import Target


def tls_context(target: Target) -> ssl.SSLContext | None:
    """None for a server without TLS.

    Raises:
        ConfigError: a file of certificates holds none, or no key that fits.
    """
    if not target.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:
        raise ConfigError(
            f"--ca-file {target.ca_file}: no certificates can be read from it ({error})."
        ) from error
    if not target.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.client_cert is not None:
        try:
            # For a key with a password OpenSSL would ask the terminal; this one is empty.
            context.load_cert_chain(target.client_cert, target.client_key, password=str)
        except OSError as error:
            raise ConfigError(
                f"--client-cert {target.client_cert}: no certificate with its key can be read from it"
                f" ({error}). A key in a file of its own is named by --client-key, and has no password."
            ) from error
    return context
