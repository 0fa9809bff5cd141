# The study on one page. What is measured: config/*.yaml. How: workflow/rules/*.smk.
#
#   .venv/bin/snakemake --cores 1                                  the full campaign, config/config.yaml
#   .venv/bin/snakemake --cores 1 --configfile config/demo.yaml    another campaign, and that file alone
#   .venv/bin/snakemake --cores 1 figures                          from the results on disk; never measures
#   .venv/bin/snakemake report --report study.html                 Snakemake's own report of finished results

from snakemake.utils import min_version

min_version("9.0")

# Only if none was given: Snakemake would merge the two, and the result would be neither campaign.
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
        # Inputs of other inputs, too: Snakemake does not check for a missing file between two existing ones.
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
