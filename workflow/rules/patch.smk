# Called by name: `snakemake --cores 1 revert_patch`. It measures nothing and always runs. Step timing is
# applied in memory, so this removes something only if an earlier version wrote into vLLM's files.


rule revert_patch:
    log:
        LOGS / "revert_patch.log",
    params:
        campaign=FOLDER.campaign_file,
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/revert_patch.py --campaign-file {params.campaign:q} 2>> {log:q} | tee -a {log:q}'
