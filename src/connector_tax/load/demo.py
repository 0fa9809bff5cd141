"""An embedded engine of its own for ``connector-tax load --demo``."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.process import LaunchRequest, running_engine

# A sweep of it takes a minute and a half.
SHAPE = "512,64"


@contextmanager
def embedded_engine(args: argparse.Namespace) -> Iterator[None]:
    """Serve the demo's engine, which ``args`` then name as the server; it is ended afterwards.

    Raises:
        ConfigError: ``args`` name another server.
    """
    if args.base_url is not None:
        raise ConfigError(
            "--demo does not go with --base-url: it serves an engine of its own. Leave one of them out."
        )
    config = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    args.shape = args.shape or SHAPE
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
