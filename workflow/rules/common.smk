# Shared by all rules. Every `if` is in connector_tax/workflow.py.

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

# A batch system that assigns GPUs also counts them.
if workflow.local_exec:
    GIVEN = workflow.global_resources.get("gpu")
    for resource, most in STUDY.limits(getattr(GIVEN, "value", GIVEN)).items():
        workflow.register_resource(resource, most)

# `python` in a rule is Snakemake's interpreter. It is set through PATH and not the shell prefix, which bash
# and Snakemake's formatter parse: a checkout's path may hold blanks, quotes and braces.
put_own_python_first(os.environ)
# The prefix replaces Snakemake's own, so it must set strict mode again: without it a script that fails before
# `| tee` would count as a success.
shell.prefix("set -euo pipefail; ")
