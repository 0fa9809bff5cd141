"""The argument that says which interpreter has vLLM, of the commands that launch an engine without a
campaign's file."""

import argparse
import os
import shutil

from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.command import no_program

VARIABLE = "ENGINE_PYTHON"


def add_engine_python(parser: argparse.ArgumentParser) -> None:
    """Optional by itself, so that usage and help are the same whatever the environment says."""
    parser.add_argument(
        "--engine-python",
        metavar="PYTHON",
        help=f"an interpreter that has vLLM; default ${VARIABLE}",
    )


def engine_python_of(args: argparse.Namespace) -> str:
    """
    Raises:
        ConfigError: neither the argument nor the variable gives one, or it cannot be run.
    """
    if given := args.engine_python or os.environ.get(VARIABLE):
        python = shutil.which(given) or given
        if fault := no_program(python):
            raise ConfigError(f"--engine-python {python}: {fault}")
        return python
    raise ConfigError(
        "no interpreter that has vLLM is given. Either --engine-python /path/to/venv/bin/python, or export"
        f" {VARIABLE}=/path/to/venv/bin/python; scripts/make_engine_env.sh makes one without a GPU."
    )
