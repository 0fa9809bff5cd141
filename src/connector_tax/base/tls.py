"""TLS to a server: which certificates are trusted, and which one the client presents."""

import ssl

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import Target


def tls_context(target: Target) -> ssl.SSLContext | None:
    """Return the context for a server; None without TLS.

    Raises:
        ConfigError: a certificate file holds none, or no matching key.
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
            # With an encrypted key OpenSSL would prompt on the terminal; this password is empty.
            context.load_cert_chain(target.client_cert, target.client_key, password=str)
        except OSError as error:
            raise ConfigError(
                f"--client-cert {target.client_cert}: no certificate with its key can be read from it"
                f" ({error}). A key in a file of its own is named by --client-key, and has no password."
            ) from error
    return context
