# The study on one page. What is measured: config/*.yaml. How: workflow/rules/*.smk.
#
#   .venv/bin/snakemake --cores 1                                  the full campaign, config/config.yaml
#   .venv/bin/snakemake --cores 1 --configfile config/demo.yaml    another campaign, and that file alone
#   .venv/bin/snakemake --cores 1 figures                          from the results on disk; never measures
#   .venv/bin/snakemake report --report study.html                 Snakemake's own report of what is finished: figures, captions, rules, times

from snakemake.utils import min_version

min_version("9.0")

# Only where none was given: Snakemake would merge the two, and half a campaign is none.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


report: "workflow/report/study.rst"


onstart:
    STUDY.begin()


onsuccess:
    STUDY.say_result()


onerror:
    STUDY.say_why(workflow.scheduler.failed, log)


if MEASURING:

    include: "workflow/rules/measure.smk"


include: "workflow/rules/patch.smk"
include: "workflow/rules/read.smk"


rule all:
    default_target: True
    input:
        # Also what the rest is made of: of a file between two that are there Snakemake does not ask whether it is there.
        FOLDER.preflight_status if MEASURING else [],
        STUDY.left(),
        STUDY.rates_to_read(),
        STUDY.put_in_to_read(),
        FOLDER.aggregate,
        FOLDER.aggregate_csv,
        FOLDER.figures / "index.json",
        FOLDER.report,
        FOLDER.manifest,
        LOGS / "patch_reverted" if MEASURING else [],
        PICTURES,
    params:
        captions=STUDY.captions(),


STUDY.refuse_unknown(TARGETS, workflow.rules)
