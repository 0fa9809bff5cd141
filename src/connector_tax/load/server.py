"""Questions to a server besides its load: whether it answers, what it serves, tokens per word, cache
counters; and the embedded server of ``--demo``.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import msgspec

from connector_tax.base import direct
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import printable
from connector_tax.base.records.target import ENDPOINTS, RequestForm, Target
from connector_tax.base.secrets import excerpt
from connector_tax.base.tls import tls_context
from connector_tax.load.arguments import DEFAULT_KEY
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import HITS, Counters
from connector_tax.run.sampler.sampler import scrape
from connector_tax.run.workload.prompts import words

ASK_WITHIN_S = 30.0
# For all of /metrics, however slowly it arrives.
METRICS_WITHIN_S = 3.0
# Longest excerpt of the server's answer in place of metrics.
MOST_CHARS = 300
# Secrets in the environment are recognised by their names, and workers inherit it: header values are put
# there under names that mark secrets.
KNOWN_AS = "CONNECTOR_TAX_LOAD_{}_API_KEY"
# Words of the two prompts whose token counts are compared.
FEW, MANY = 50, 450
# For --demo: a sweep takes a minute and a half.
DEMO_SHAPE = "512,64"


def headers_of(header_texts: list[str], api_key_env: str | None) -> tuple[tuple[str, str], ...]:
    """Parse headers ``NAME:VALUE``, and add the server's key unless one carries authorization.

    Raises:
        ConfigError: no colon, or the variable is not set.
    """
    parts = (text.partition(":") for text in header_texts)
    headers = [(name.strip(), value.strip()) for name, colon, value in parts if colon]
    if len(headers) < len(header_texts):
        raise ConfigError("--header: give NAME:VALUE; one of them has no colon.")
    key = os.environ.get(api_key_env or DEFAULT_KEY)
    if api_key_env is not None and not key:
        raise ConfigError(
            f"--api-key-env {api_key_env}: that environment variable is not set. Export the server's key as"
            f" {api_key_env}."
        )
    if key and not any(name.lower() == "authorization" for name, _ in headers):
        headers.append(("Authorization", f"Bearer {key}"))
    # A server may repeat any header in an error; records must not contain them.
    for k, (name, value) in enumerate(headers):
        token = value.partition(" ")[2] if name.lower() == "authorization" else ""
        os.environ[KNOWN_AS.format(k)] = token or value
    return tuple(headers)


def reach(target: Target) -> Target:
    """Return the target with the model to load, after asking the server for its models.

    Raises:
        ConfigError: no server answers, it does not serve the model, or it refuses the key.
    """
    # A gateway may list a model once per engine behind it.
    served = list(dict.fromkeys(_models(target)))
    if target.model in served:
        return target
    if not target.model and len(served) == 1:
        return msgspec.structs.replace(target, model=served[0])
    problem = f"--model {target.model}" if target.model else "--model is missing"
    raise ConfigError(f"{problem}: {target.base_url} serves {printable(', '.join(served)) or 'nothing'}.")


def measure_words(target: Target, form: RequestForm, seed: int) -> RequestForm:
    """Return ``form`` with this server's tokens per word, measured by the usage of two random prompts.

    Raises:
        ConfigError: the server does not report prompt lengths.
    """
    few, many = (_prompt_tokens(target, form, seed, n) for n in (FEW, MANY))
    per_word = (many - few) / (MANY - FEW)
    if per_word <= 0:
        raise ConfigError(
            f"{target.base_url}: {FEW} words are {few} prompt tokens and {MANY} words are {many}, by its"
            " usage: prompts of a wanted length cannot be made. Give --prompts."
        )
    return msgspec.structs.replace(
        form, tokens_per_word=per_word, template_tokens=max(few - per_word * FEW, 0.0)
    )


def _prompt_tokens(target: Target, form: RequestForm, seed: int, n: int) -> int:
    text = words(seed, n, n).decode()
    prompt = {"messages": [{"role": "user", "content": text}]} if form.api == "chat" else {"prompt": text}
    body = {"model": target.model, "max_tokens": 1, "temperature": 0, **form.body, "stream": False, **prompt}
    url = f"{target.base_url}{ENDPOINTS[form.api]}"
    try:
        with client_of(target) as client:
            answer = direct.whole(client, "POST", url, within_s=ASK_WITHIN_S, json=body)
            if answer.status_code != 200:
                raise ValueError(f"HTTP {answer.status_code}: {excerpt(answer.content, 200)}")
            n_tokens = answer.json()["usage"]["prompt_tokens"]
            if type(n_tokens) is not int or n_tokens < 1:
                raise ValueError(f"prompt_tokens is {n_tokens!r}")
            return n_tokens
    except (httpx.HTTPError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{url}: a prompt of {n} words has no usage"
            f" ({printable(excerpt(str(error), 300))}). Prompts of a wanted length cannot be made; give"
            " --prompts, or mend the server."
        ) from error


# Texts of OpenSSL and httpx on why TLS fails, in order of precedence, and the remedy. Python's servers refuse
# a certificate by closing the connection, without the TLS alert. Another authority does not help if the name
# differs or the certificate has expired.
_NOT_TRUSTED = "its certificate is not trusted"
_FAILURES = (
    (
        "CERTIFICATE_VERIFY_FAILED.*mismatch",
        _NOT_TRUSTED,
        "Use a name that it was made for in --base-url, or take any with --insecure",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED.*(expired|not yet valid)",
        _NOT_TRUSTED,
        "Look at this host's clock, give the server a new one, or take any with --insecure",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        _NOT_TRUSTED,
        "Name the one that it is signed by as --ca-file, or take any with --insecure",
    ),
    ("certificate required", "it asks for a certificate of the client", "Name yours as --client-cert"),
    (
        "ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_|DECRYPT_ERROR|ACCESS_DENIED)",
        "it refuses the certificate of --client-cert",
        "Give one as --client-cert that is signed by an authority of this server and is not over",
    ),
    (
        "ALERT_HANDSHAKE_FAILURE|^https.*(ReadError|RemoteProtocolError)",
        "it ended the connection of TLS without an answer",
        (
            "If it wants a certificate of the client, name one as --client-cert that it takes; otherwise it"
            " takes no cipher of this host, or is no HTTP server"
        ),
    ),
    (
        "",
        "no OpenAI-compatible server answers /v1/models there",
        "Start it first, or give its http://host:port",
    ),
)


def _models(target: Target) -> list[str]:
    url = target.base_url
    try:
        with client_of(target) as client:
            answer = direct.whole(client, "GET", f"{url}/v1/models", within_s=ASK_WITHIN_S)
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"--base-url {url}: it refuses to answer (HTTP {answer.status_code}). Export its key as"
                f" {DEFAULT_KEY}, or name the variable that holds it by --api-key-env."
            )
        if answer.has_redirect_location:
            raise ConfigError(
                f"--base-url {url}: it refers to {printable(answer.headers.get('Location', ''), 200)!r} (HTTP"
                f" {answer.status_code}), and requests follow nobody. Give the address that answers itself."
            )
        answer.raise_for_status()
        served = direct.served_models(answer)
        if served is None:
            raise ValueError(f"not a list of models: {excerpt(answer.content, 80)!r}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        message = printable(str(error), 400) or type(error).__name__
        cause, remedy = failure_of(f"{url} {type(error).__name__} {message}")
        raise ConfigError(f"--base-url {url}: {cause} ({message}). {remedy}.") from error
    return served


def failure_of(error: str) -> tuple[str, str]:
    """Return what a connection error means, and the remedy."""
    return next((what, remedy) for text, what, remedy in _FAILURES if re.search(text, error))


def client_of(target: Target) -> direct.Client:
    """Return a client with the headers and certificates of ``target``.

    Raises:
        ConfigError: a file of certificates holds none.
    """
    return direct.Client(timeout_s=ASK_WITHIN_S, headers=dict(target.headers), verify=tls_context(target))


class CacheCounters:
    """Prefix-cache counters of ``/metrics`` around a cell; a server that timed out is not asked again.

    Missing counters are reported once.
    """

    def __init__(self, target: Target, *, within_s: float = METRICS_WITHIN_S) -> None:
        self._target = target
        self._within_s = within_s
        self._silent = False
        self._said = ""

    def now(self) -> Counters:
        """Return the counters; empty if the server has none, or did not answer in time."""
        if self._silent:
            return {}
        counters: Counters = {}
        message = f"{self._target.base_url}/metrics: no counter of a prefix cache is in it"
        try:
            with client_of(self._target) as client:
                counters = scrape(client, self._target.base_url, self._within_s)
        except OSError as error:
            message = printable(str(error), MOST_CHARS)
            self._silent = isinstance(error.__cause__, httpx.TimeoutException)
        # Report once, not before and after each cell.
        if HITS not in counters and message != self._said:
            self._said = message
            print(f"{message}. Hits of a prefix cache are not known.", file=sys.stderr)
        return counters


@contextmanager
def embedded_engine(args: argparse.Namespace) -> Iterator[None]:
    """Serve the demo's engine, set it as the server in ``args``, and stop it afterwards.

    Raises:
        ConfigError: ``args`` name another server.
    """
    if args.base_url is not None:
        raise ConfigError(
            "--demo does not go with --base-url: it serves an engine of its own. Leave one of them out."
        )
    config = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    args.shape = args.shape or DEMO_SHAPE
    with TemporaryDirectory(prefix="connector-tax.") as folder:
        request = LaunchRequest(config.engine, config.connector("plain"), Path(folder))
        with running_engine(request) as running:
            running.wait_ready()
            args.base_url = running.base_url
            print(
                f"the embedded engine, whose times are a model's, serves {running.model} at"
                f" {running.base_url}",
                flush=True,
            )
            yield
