"""Model many instances behind a gateway: queues, routers and loads of a study."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command, add_options
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import to_json, write_text
from connector_tax.base.parallel import cores, each_in
from connector_tax.base.plan.named import find_campaign
from connector_tax.fleet.campaign import Source, members_of
from connector_tax.fleet.document import document, table, text
from connector_tax.fleet.run import Member, run_study, slos
from connector_tax.fleet.study import given_profiles, load_study
from connector_tax.read.figures.fleet import draw_fleet


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "campaign",
        type=find_campaign,
        nargs="?",
        metavar="CAMPAIGN",
        help="engines are fitted to its step records; without one the study has profiles",
    )
    add_options(
        parser,
        ("--fleet", Path, "the study (default: %(default)s)", Path("config/fleet.yaml")),
        ("--to=FOLDER", Path, "where to write; default fleet/ in the campaign's results"),
        ("--processes", int, "default: one per core, at most four"),
    )


def _run(args: argparse.Namespace) -> int:
    root = args.campaign and args.campaign.root
    if root is None and args.to is None:
        raise ConfigError("give a measured campaign, or --to where the study has profiles of its own")
    study = load_study(args.fleet)
    with each_in(args.processes or cores()) as each:
        if root is None:
            profiles = given_profiles(study, str(args.fleet))
            patterns, members = slos(study, None), [Member("given", None, profiles)]
            source, by_config = Source(None, {}, {}), {"given": profiles}
        else:
            print(f"fitting engines to the step records of {root}", flush=True)
            measured = members_of(root, study, each)
            patterns, members = measured.patterns, list(measured.members)
            source, by_config = measured.source, measured.profiles
        settings = len(study.instances) * len(study.policies) * len(study.loads)
        print(
            f"{len(members)} configurations x {settings} settings x {study.days} days to simulate", flush=True
        )
        fleet = document(study, source, patterns, by_config, run_study(study, members, patterns, each))
    out = args.to or root / "fleet"
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "fleet.json", to_json(fleet))
    write_text(out / "fleet.csv", table(fleet))
    draw_fleet(fleet, out)
    print(f"{text(fleet)}\nwrote {out}/fleet.json, .csv, .svg and .png")
    return 0


COMMAND = Command(__doc__, _arguments, _run, usage="[CAMPAIGN] [options]")
