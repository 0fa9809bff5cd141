# The reading wing: from raw results to the report. Needs no engine and no GPU, only the files on disk.

# Shown by `snakemake --report`, with the captions of figures/index.json. Input of the targets only: as the
# input of a productive rule it would rerun that rule as soon as figures exist.
PICTURES = STUDY.pictures(caption="../report/figure.rst")


rule aggregate:
    input:
        receipts=lambda w: STUDY.to_read(),
        settings=STUDY.settings_to_read(),
        rates=STUDY.rates_to_read(),
        put_in=STUDY.put_in_to_read(),
    output:
        FOLDER.aggregate,
        FOLDER.aggregate_csv,
    log:
        LOGS / "aggregate.log",
    params:
        root=FOLDER.root,
        settings=str(STUDY.config.analysis),
        code=code("scripts/analyze.py"),
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/analyze.py --root {params.root:q} 2>> {log:q} | tee -a {log:q}'


rule draw:
    input:
        FOLDER.aggregate,
    output:
        FOLDER.figures / "index.json",
    log:
        LOGS / "figures.log",
    params:
        root=FOLDER.root,
        code=code("scripts/plot_connector_tax.py"),
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/plot_connector_tax.py --root {params.root:q} 2>> {log:q} | tee -a {log:q}'


# Its output appears at the end of the run. The log is the last word, by which `job_failures` finds the command.
rule write_report:
    input:
        FOLDER.aggregate,
        FOLDER.figures / "index.json",
    output:
        FOLDER.report,
    log:
        LOGS / "report.log",
    params:
        root=FOLDER.root,
        code=code("scripts/build_report.py"),
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/build_report.py --root {params.root:q} &> {log:q}'


rule write_manifest:
    input:
        receipts=lambda w: STUDY.to_read(),
    output:
        FOLDER.manifest,
    log:
        LOGS / "manifest.log",
    params:
        root=FOLDER.root,
        code=code("scripts/build_manifest.py"),
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/build_manifest.py --root {params.root:q} 2>> {log:q} | tee -a {log:q}'


# The stages by name.


rule analysis:
    input:
        FOLDER.aggregate,


rule figures:
    input:
        FOLDER.figures / "index.json",


rule report:
    input:
        FOLDER.report,
        FOLDER.manifest,
        PICTURES,
    params:
        captions=STUDY.captions(),


rule manifest:
    input:
        FOLDER.manifest,
