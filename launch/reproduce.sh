#!/usr/bin/env bash
# A table or figure of the paper: its networks trained and attacked, one after another, and then the
# table, beside the published numbers.
#
#   launch/reproduce.sh TABLE [--scale=0.05] [--seeds=0,1,2] [--out=FOLDER] [--slurm | --tpu]
#                       [--config.FIELD=VALUE ...]
#
# TABLE is one of those that `python -m cat_jax.report --help` names, or several with commas between,
# or all. --scale=0.05 shortens each run to a twentieth of its epochs and of the test images, and says
# so in every table. What is done is skipped, and a run that was stopped goes on from its last
# checkpoint: give the same command again. One that fails does not keep the others from running.
#
#   --slurm   prints an sbatch command for each run instead of running it; SBATCH_OPTIONS are added
#   --tpu     prints a gcloud command for each run, for the TPU VM named by TPU in zone ZONE, whose
#             home folders have the repository in cat_jax/; RUNS and CAT_JAX_DATA
#             are then folders of the VM
#
# Pipe these into bash to submit them, and give the command without --slurm or --tpu for the table.
# Data have to be prepared: python -m cat_jax.data --dataset=mnist. Their folder is CAT_JAX_DATA, or
# ~/tensorflow_datasets. RUNS gets the runs, by default runs in the repository. Both, and --out, may
# be relative to the caller's folder. With an NVIDIA GPU, and for --slurm, jax is installed for it.
# PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# A run that is asked to stop saves, and ends well: then this script has to end too.
trap 'exit 130' INT TERM
caller=$PWD
data=${CAT_JAX_DATA:-}
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

table=${1:-}
case $table in
  "" | -*) fail "no table is named; say which first, such as: $0 mnist --scale=0.05" ;;
esac
shift
where=local
options=() printing=() overrides=()
for argument in "$@"; do
  case $argument in
    --slurm | --tpu) where=${argument#--} ;;
    --scale=* | --seeds=*) options+=("$argument") ;;
    --out=*) printing+=("--out=$(cd "$caller" && absolute "${argument#--out=}")") ;;
    --config.*=*) overrides+=("$argument") ;;
    *) fail "$argument is not understood; expected one of those that the head of $0 lists." ;;
  esac
done
runs=${RUNS:-runs}
if [ "$where" != tpu ]; then
  [ -z "${RUNS:-}" ] || runs=$(cd "$caller" && absolute "$RUNS")
  data=${CAT_JAX_DATA:-}  # By now absolute.
fi
if [ -n "$data" ]; then
  overrides=("--config.data_dir=$data" "${overrides[@]}")
fi
# A login node has no GPU, and its jobs have.
if [ "$where" = slurm ] || command -v nvidia-smi > /dev/null; then set_up cuda; else set_up runtime; fi

# Prints the commands of the runs that are not done, one a line, quoted for a shell.
list_runs() {
  "$python" -m cat_jax.report --table="$table" --list-runs --todo --runs="$runs" \
    "${options[@]}" "${overrides[@]}"
}

# Runs each line that it reads; prints how long it took, and in the end what failed.
run_here() {
  local line started failed=0
  while read -r line; do
    echo "$line"
    started=$(date +%s)
    # The line is quoted for a shell. Its first word, python, is the one of the environment.
    eval "\"\$python\" ${line#python }" < /dev/null || failed=$((failed + 1))
    echo "took $(($(date +%s) - started)) s"
  done
  [ "$failed" = 0 ] || echo "$failed runs failed; the table says which are missing." >&2
}

# Prints an sbatch command for each line; the job goes to the repository and runs it.
for_slurm() {
  local line
  while read -r line; do
    printf 'sbatch --gpus=1 %s --chdir=%q --wrap=%q\n' \
      "${SBATCH_OPTIONS:-}" "$PWD" "$(printf '%q' "$python") ${line#python }"
  done
}

# Prints a gcloud command for each line; every host of the TPU runs it.
for_tpu() {
  local line
  while read -r line; do
    tpu_command "${line#python } --cluster=tpu"
  done
}

commands=$(list_runs)
case $where in
  slurm) [ -z "$commands" ] || for_slurm <<< "$commands" ;;
  tpu) [ -z "$commands" ] || for_tpu <<< "$commands" ;;
  local)
    [ -z "$commands" ] || run_here <<< "$commands"
    "$python" -m cat_jax.report --table="$table" --runs="$runs" "${options[@]}" "${printing[@]}"
    ;;
esac
