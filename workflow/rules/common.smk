# What every rule shares. All that needs an `if` is decided in connector_tax/workflow.py.

import os
import sys

from snakemake.logging import logger

from connector_tax.workflow import code, only_reads, open_study, put_own_python_first, requested_targets

TARGETS = requested_targets(sys.argv[1:], os.environ)
MEASURING = not only_reads(TARGETS)
CONFIG_NAME = ", ".join(map(str, workflow.overwrite_configfiles)) or "config/config.yaml"
STUDY = open_study(config, CONFIG_NAME, measuring=MEASURING, environment=os.environ)
FOLDER, LOGS = STUDY.folder, STUDY.logs
logger.addFilter(STUDY.say_result_of_nothing)
STUDY.hush(logger)

# Where a batch system hands out the cards, it also counts them.
if workflow.local_exec:
    GIVEN = workflow.global_resources.get("gpu")
    for resource, most in STUDY.limits(getattr(GIVEN, "value", GIVEN)).items():
        workflow.register_resource(resource, most)

# `python` in a rule is the interpreter that Snakemake runs on. Not by the prefix, which bash and Snakemake's formatter
# would read: a checkout's path may hold blanks, quotes and braces.
put_own_python_first(os.environ)
# The prefix takes the place of Snakemake's own, so it must say strict mode again: without it a script that fails before
# `| tee` would pass for a success.
shell.prefix("set -euo pipefail; ")
