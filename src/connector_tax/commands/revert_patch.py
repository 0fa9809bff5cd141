"""Check that the engine's vLLM holds nothing of connector-tax, and take out what an earlier version wrote
into its files.

Step timing is applied in memory today, so there is usually nothing to take out.
"""

import argparse
import os
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.run.engine.settings import revert


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")


def _run(args: argparse.Namespace) -> int:
    if not args.campaign_file.exists():
        print("nothing was started, nothing to revert")
        return 0
    engine = config_of(read_campaign_file(args.campaign_file)).engine
    if engine.is_vllm and not os.access(engine.python or "", os.X_OK):
        print(f"no engine at {engine.python} to look at; this campaign wrote nothing into its vLLM")
        return 0
    print(revert(engine))
    return 0


COMMAND = Command(__doc__, _arguments, _run)
