"""Sample an engine's /metrics at a fixed interval into a JSONL file, until interrupted."""

from connector_tax.base.door import run_door
from connector_tax.run.sampler.sampler import main

if __name__ == "__main__":
    run_door(main)
