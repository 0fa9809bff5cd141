"""Sample an engine's /metrics at a fixed interval into a JSONL file, until interrupted."""

from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.run.sampler.sampler import main

if __name__ == "__main__":
    run_entrypoint(main)
