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
#   --slurm   prints one sbatch command with a job array, in which each run is a task with one GPU, instead
#             of running them; a task saves and is queued again as by launch/slurm.sbatch, whose time
#             limit it has; SBATCH_OPTIONS are added, such as "--partition=gpu --time=12:00:00"
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

# Prints one sbatch command, whose job script is in it, for all lines.
# shellcheck disable=SC2016  # The job expands its variables, not this script.
for_slurm() {
  local lines
  mapfile -t lines
  printf 'sbatch --job-name=%q --array=0-%d --ntasks=1 --gpus=1 --time=24:00:00 --signal=TERM@120 --requeue ' \
    "$table" "$((${#lines[@]} - 1))"
  printf -- "--open-mode=append --output=%%x-%%A_%%a.log --chdir=%q %s << 'END'\n" "$PWD" "${SBATCH_OPTIONS:-}"
  printf '#!/usr/bin/env bash\nexport VENV=%q SLURM_SUBMIT_DIR=$PWD\nruns=(\n' "$VENV"
  printf '  %q\n' "${lines[@]#python -m cat_jax.main }"
  printf ')\neval "set -- ${runs[SLURM_ARRAY_TASK_ID]}"\nsource launch/slurm.sbatch\nEND\n'
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
