# What every rule shares: the checked config, the campaign's folder and date, and what was asked for.

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from snakemake.cli import parse_args

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.config import parse_campaign
from connector_tax.errors import ConnectorTaxError
from connector_tax.files import hash_of, read_json, to_json, write_text_if_changed
from connector_tax.plan import campaign_document, launch_spec, run_order, run_spec_hash


def stop(message):
    """End with one message: Snakemake would wrap it in a traceback of its own parser."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)


def requested_targets():
    """What was asked for on the command line; jobs that Snakemake starts as processes inherit it.

    Snakemake knows its targets only after it has read the rules, and here they decide which rules
    there are.
    """
    if "CONNECTOR_TAX_TARGETS" not in os.environ:
        _, arguments = parse_args(sys.argv[1:])
        os.environ["CONNECTOR_TAX_TARGETS"] = " ".join(arguments.targets or [])
    return set(os.environ["CONNECTOR_TAX_TARGETS"].split())


# Targets that only read. Asked for by name, they take what is on disk: no rule that could measure
# exists then, so a clone that scrambled every time stamp cannot start an engine.
READING = {"analysis", "figures", "report", "manifest"}
TARGETS = requested_targets()
MEASURING = not TARGETS or not TARGETS <= READING

CONFIG_NAME = ", ".join(map(str, workflow.overwrite_configfiles)) or "config/config.yaml"
try:
    CAMPAIGN = parse_campaign(config, where=CONFIG_NAME)
    FOLDER = CampaignFolder(Path("results") / CAMPAIGN.campaign)
    # The date names folders, so it is that of the first start: kept in campaign.json and, until that
    # exists, in the environment, where processes started after midnight find it.
    if FOLDER.campaign_file.exists():
        EARLIER = read_json(FOLDER.campaign_file)
    else:
        EARLIER = {"date": os.environ.setdefault("CONNECTOR_TAX_DATE", f"{datetime.now(UTC):%Y-%m-%d}")}
except ConnectorTaxError as error:
    stop(error)

DATE = EARLIER["date"]
CAMPAIGN_FILE = FOLDER.campaign_file
CONFIGS = list(CAMPAIGN.connector_ids)
LOGS = FOLDER.root / "logs"
PYTHON = sys.executable


wildcard_constraints:
    connector="|".join(CONFIGS),


def write_campaign_file():
    """campaign.json: what every script reads; its date and birth are those of the first start."""
    now = datetime.now(UTC)
    created = EARLIER.get("created_utc") or f"{now:%Y-%m-%dT%H:%M:%SZ}"
    try:
        write_text_if_changed(
            CAMPAIGN_FILE, to_json(campaign_document(CAMPAIGN, date=DATE, created_utc=created))
        )
    except ConnectorTaxError as error:
        stop(error)


def receipts(phase):
    """The receipts of one phase, one per configuration."""
    return [str(FOLDER.run(DATE, c, phase).receipt) for c in CONFIGS]


def receipts_to_read():
    """All of them where measuring is part of the DAG, else those that are on disk."""
    if MEASURING:
        return [r for phase in ("a", "b", "b_prime") for r in receipts(phase)]
    found = [str(r.receipt) for r in FOLDER.runs() if r.receipt.exists()]
    if not found:
        stop(
            f"{FOLDER.root}: nothing measured there yet, so there is nothing to read. "
            "Run `snakemake --cores 1` first, or put shipped results in place."
        )
    return found


def code(*rooms):
    """Source files of rooms, as inputs: an edit to the analysis runs the analysis again, nothing else."""
    return sorted(str(p) for room in rooms for p in Path("src/connector_tax", room).glob("*.*"))
