#!/usr/bin/env bash
# A job's id -> running, success or failed, as Snakemake wants it. scontrol knows a job for some minutes after its end (MinJobAge).
set -euo pipefail

# One line of words: JobState=COMPLETED ExitCode=0:0 ...
if ! told=$(scontrol --oneliner show job "$1" 2>&1); then
  case $told in
    *"Invalid job id"*) echo failed ;;   # forgotten meanwhile: Snakemake looks at the outputs at its next start
    *) echo running ;;                   # the scheduler does not answer now; it is asked again
  esac
  exit 0
fi
state=${told#* JobState=}
case ${state%% *} in
  COMPLETED) echo success ;;
  PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED | STOPPED | REQUEUED | REQUEUE_HOLD | SIGNALING | STAGE_OUT | RESIZING) echo running ;;
  *) echo failed ;;
esac
