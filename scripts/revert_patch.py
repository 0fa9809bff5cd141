"""Take the step-timing patch out of the engine's vLLM; safe to run at any time but while one starts."""

import argparse
import os
from pathlib import Path

from connector_tax.doors import run_door
from connector_tax.engine.patching import ensure_reverted
from connector_tax.measure.locks import alone_in
from connector_tax.plan import config_of, read_campaign_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")
    args = parser.parse_args()
    if not args.campaign_file.exists():
        print("nothing was started, nothing to revert")
        return
    config = config_of(read_campaign_file(args.campaign_file))
    if config.engine.kind == "vllm" and not os.access(config.engine.python or "", os.X_OK):
        print(f"no engine at {config.engine.python}, nothing to revert")
        return
    with alone_in(args.campaign_file.parent, config.campaign):
        ensure_reverted(config.engine)
    print("vLLM is as its wheel installed it" if config.engine.kind == "vllm" else "no patch on this engine")


if __name__ == "__main__":
    run_door(main)
