"""What a server is asked before it is loaded: whether it is there, what it serves, how many tokens it makes of words."""

import os
from dataclasses import dataclass

import httpx
import msgspec

from connector_tax.base import direct
from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import printable
from connector_tax.base.records.target import ENDPOINTS, RequestForm, Target, target_of
from connector_tax.base.redaction import excerpt
from connector_tax.base.tls import tls_context
from connector_tax.load.arguments import DEFAULT_KEY
from connector_tax.run.workload.prompts import words

ASK_WITHIN_S = 30.0
# The redactor knows secrets of the environment by their names, and workers inherit it: what goes out in headers is put there under
# names that tell of a secret.
KNOWN_AS = "CONNECTOR_TAX_LOAD_{}_API_KEY"
# Alerts by which a server says that it does not take the client's certificate, as OpenSSL names them.
REFUSALS = (
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_",
    "ALERT_DECRYPT_ERROR",
    "ALERT_ACCESS_DENIED",
)
# Words of the two prompts whose lengths are compared.
FEW, MANY = 50, 450


@dataclass(frozen=True, slots=True)
class Access:
    """How a person says where a server is."""

    base_url: str
    model: str | None
    api_key_env: str | None = None
    headers: tuple[str, ...] = ()
    ca_file: str | None = None
    insecure: bool = False
    client_cert: str | None = None
    client_key: str | None = None


def reach(access: Access) -> Target:
    """The server that is meant, asked for its models.

    Raises:
        ConfigError: no server answers there, it does not serve the model, or it refuses the key.
    """
    headers = tuple(_header(text) for text in access.headers)
    key = _key(access.api_key_env)
    if key is not None and not any(name.lower() == "authorization" for name, _ in headers):
        headers = (*headers, ("Authorization", f"Bearer {key}"))
    _make_known(headers)
    target = target_of(
        access.base_url,
        access.model or "",
        headers=headers,
        ca_file=access.ca_file,
        verify=not access.insecure,
        client_cert=access.client_cert,
        client_key=access.client_key,
    )
    # A gateway may list a model once for each engine behind it.
    served = list(dict.fromkeys(_models(target, access.base_url)))
    if access.model is not None and access.model in served:
        return target
    if access.model is None and len(served) == 1:
        return msgspec.structs.replace(target, model=served[0])
    said = "--model is missing" if access.model is None else f"--model {access.model}"
    raise ConfigError(f"{said}: {access.base_url} serves {printable(', '.join(served)) or 'nothing'}.")


def _make_known(headers: tuple[tuple[str, str], ...]) -> None:
    """A server may repeat any header in an error; records are to hold none of them."""
    for k, (name, value) in enumerate(headers):
        bare = value.partition(" ")[2] if name.lower() == "authorization" else ""
        os.environ[KNOWN_AS.format(k)] = bare or value


def measure_words(target: Target, form: RequestForm, seed: int) -> RequestForm:
    """``form`` with how many tokens this server makes of a word: two prompts of random words are sent, and their usage is read.

    Raises:
        ConfigError: the server does not say how long prompts are.
    """
    few, many = (_prompt_tokens(target, form, seed, n) for n in (FEW, MANY))
    per_word = (many - few) / (MANY - FEW)
    if per_word <= 0:
        raise ConfigError(
            f"{target.base_url}: {FEW} words are {few} prompt tokens and {MANY} words are {many}, by its usage: prompts of a "
            "wanted length cannot be made. Give --prompts."
        )
    template = max(few - per_word * FEW, 0.0)
    return RequestForm(
        api=form.api,
        stream=form.stream,
        honor_eos=form.honor_eos,
        body=form.body,
        timeout_s=form.timeout_s,
        words=form.words,
        tokens_per_word=per_word,
        template_tokens=template,
    )


def _prompt_tokens(target: Target, form: RequestForm, seed: int, n: int) -> int:
    text = words(seed, n, n).decode()
    body = {"model": target.model, "max_tokens": 1, "temperature": 0, **form.body, "stream": False}
    if form.api == "chat":
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    try:
        with client_of(target) as client:
            url = f"{target.base_url}{ENDPOINTS[form.api]}"
            answer = direct.whole(client, "POST", url, within_s=ASK_WITHIN_S, json=body)
            if answer.status_code != 200:
                raise ValueError(f"HTTP {answer.status_code}: {excerpt(answer.content, 200)}")
            found = answer.json()["usage"]["prompt_tokens"]
            if type(found) is not int or found < 1:
                raise ValueError(f"prompt_tokens is {found!r}")
            return found
    except (httpx.HTTPError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{target.base_url}{ENDPOINTS[form.api]}: a prompt of {n} words has no usage ({printable(excerpt(str(error), 300))}). Prompts of a "
            "wanted length cannot be made; give --prompts, or mend the server."
        ) from error


def _models(target: Target, said: str) -> list[str]:
    try:
        with client_of(target) as client:
            answer = direct.whole(client, "GET", f"{target.base_url}/v1/models", within_s=ASK_WITHIN_S)
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"--base-url {said}: it refuses to answer (HTTP {answer.status_code}). Export its key as {DEFAULT_KEY}, or name the "
                "variable that holds it by --api-key-env."
            )
        if answer.has_redirect_location:
            raise ConfigError(
                f"--base-url {said}: it refers to {printable(answer.headers.get('Location', ''), 200)!r} (HTTP {answer.status_code}), and "
                "requests follow nobody. Give the address that answers itself."
            )
        answer.raise_for_status()
        served = direct.served_models(answer)
        if served is None:
            raise ValueError(f"not a list of models: {excerpt(answer.content, 80)!r}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise ConfigError(
                f"--base-url {said}: its certificate is not trusted ({error}). {_helps(str(error))}, or take any with --insecure."
            ) from error
        if "certificate required" in str(error):
            raise ConfigError(
                f"--base-url {said}: it asks for a certificate of the client ({error}). Name yours as --client-cert."
            ) from error
        if target.client_cert is not None and any(alert in str(error) for alert in REFUSALS):
            raise ConfigError(
                f"--base-url {said}: it refuses the certificate {target.client_cert} ({error}). Give one as --client-cert that is signed "
                "by an authority of this server and is not over."
            ) from error
        if "ALERT_HANDSHAKE_FAILURE" in str(error):
            raise ConfigError(
                f"--base-url {said}: it ended the handshake of TLS ({error}). If it wants a certificate of the client, name one as "
                "--client-cert; otherwise it takes no cipher of this host."
            ) from error
        # Python's servers refuse a certificate by closing, without the alert that TLS has for it.
        if target.tls and isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
            whose = "another one" if target.client_cert is not None else "one"
            raise ConfigError(
                f"--base-url {said}: it closed the connection of TLS without an answer ({error or type(error).__name__}). If it wants a "
                f"certificate of the client, name {whose} as --client-cert; otherwise it may be no HTTP server."
            ) from error
        raise ConfigError(
            f"--base-url {said}: no OpenAI-compatible server answers /v1/models there "
            f"({printable(str(error), 400) or type(error).__name__}). Start it first, or give its http://host:port."
        ) from error
    return served


def _helps(error: str) -> str:
    """No authority helps where the name is another one, or the time is over."""
    if "mismatch" in error:
        return "Use a name that it was made for in --base-url"
    if "expired" in error or "not yet valid" in error:
        return "Look at this host's clock, or give the server a new one"
    return "Name the one that it is signed by as --ca-file"


def client_of(target: Target) -> direct.Client:
    """Asks as requests do: with the headers of ``target``, and of a server with the certificate that it wants.

    Raises:
        ConfigError: a file of certificates holds none.
    """
    return direct.Client(timeout_s=ASK_WITHIN_S, headers=dict(target.headers), verify=tls_context(target))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ConfigError("--header: give NAME:VALUE; one of them has no colon.")
    return name.strip(), value.strip()


def _key(variable: str | None) -> str | None:
    if variable is None:
        return os.environ.get(DEFAULT_KEY) or None
    if not os.environ.get(variable):
        raise ConfigError(
            f"--api-key-env {variable}: that environment variable is not set. Export the server's key as {variable}."
        )
    return os.environ[variable]
