#!/bin/bash
# A share of a plan on each task of a Slurm array: sbatch --array=0-7 slurm_array.sh PLAN FOLDER [options of nestor tune]
#SBATCH --job-name=nestor-share
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:INT@60
set -euo pipefail
plan=$1 out=$2
shift 2
shard=$SLURM_ARRAY_TASK_ID
# Databases lie on a local disk. What was exported before is where this share goes on, on whichever node.
work=${NESTOR_WORK:-/var/tmp}/nestor-$SLURM_ARRAY_JOB_ID-$shard
mkdir -p "$work" "$out"
if [ ! -e "$work/share.db" ] && [ -e "$out/share$shard.jsonl" ]; then
    nestor db merge "$out/share$shard.jsonl" --db "$work/share.db"
fi
exec nestor tune --plan "$plan" --shard "$shard/$SLURM_ARRAY_TASK_COUNT" --db "$work/share.db" --export "$out/share$shard.jsonl" "$@"
