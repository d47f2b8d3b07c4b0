#!/usr/bin/env bash
# Trains and attacks the networks of a table or figure of the paper, one after another, and prints the table
# beside the published numbers.
#
#   launch/reproduce.sh TABLE [--scale=0.05] [--seeds=0,1,2] [--out=FOLDER] [--slurm | --tpu]
#                       [--plan=TARGET] [--config.FIELD=VALUE ...]
#
# TABLE is a name from `python -m cat_jax.report --help`, several names with commas between them, or all.
# --scale=0.05 shortens each run to a twentieth of its epochs and test images, and labels every table. The
# script skips finished runs and resumes stopped ones, so run the same command again. A run that fails does
# not stop the others.
#
#   --slurm   prints one sbatch command with a job array instead of running anything. Each run is a task with
#             one GPU, which saves and queues itself again as in launch/slurm.sbatch, with the same time
#             limit. SBATCH_OPTIONS adds options, such as "--partition=gpu --time=12:00:00".
#   --plan=TARGET   with --slurm: first plans each run for the target, such as h100 (python -m cat_jax.plan),
#             and submits nothing if one does not fit.
#   --tpu     prints a gcloud command for each run on the TPU VM TPU in zone ZONE. The VM's home folders hold
#             the repository in cat_jax/. RUNS and CAT_JAX_DATA are then folders of the VM.
#
# Pipe these into bash to submit them. Without --slurm or --tpu the command prints the table afterwards.
# Prepare the data first: python -m cat_jax.data --dataset=mnist. CAT_JAX_DATA names their folder, by default
# ~/tensorflow_datasets. RUNS names the folder of the runs, by default runs in the repository. Both, and
# --out, may be relative to the caller's folder. With an NVIDIA GPU, and for --slurm, the script installs jax
# for GPUs. PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# Because a run that gets a signal saves and exits with status 0, and this script should end too.
trap 'exit 130' INT TERM
caller=$PWD
data=${CAT_JAX_DATA:-}
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

table=${1:-}
case $table in
  "" | -*) fail "no table is named. Name one first, such as: $0 mnist --scale=0.05" ;;
esac
shift
where=local target=''
options=() printing=() overrides=()
for argument in "$@"; do
  case $argument in
    --slurm | --tpu) where=${argument#--} ;;
    --scale=* | --seeds=*) options+=("$argument") ;;
    --out=*) printing+=("--out=$(cd "$caller" && absolute "${argument#--out=}")") ;;
    --plan=*) target=${argument#--plan=} ;;
    --config.*=*) overrides+=("$argument") ;;
    *) fail "$argument is not a flag; the head of $0 lists the arguments." ;;
  esac
done
[ -z "$target" ] || [ "$where" = slurm ] || fail "--plan needs --slurm; python -m cat_jax.plan plans one run."
runs=${RUNS:-runs}
if [ "$where" != tpu ]; then
  [ -z "${RUNS:-}" ] || runs=$(cd "$caller" && absolute "$RUNS")
  data=${CAT_JAX_DATA:-}  # Absolute, by _setup.sh.
fi
if [ -n "$data" ]; then
  overrides=("--config.data_dir=$data" "${overrides[@]}")
fi
# Because a login node has no GPU, but its jobs do.
if [ "$where" = slurm ] || command -v nvidia-smi > /dev/null; then set_up cuda; else set_up runtime; fi

# Prints one command for each unfinished run, quoted for a shell.
list_runs() {
  "$python" -m cat_jax.report --table="$table" --list-runs --todo --runs="$runs" \
    "${options[@]}" "${overrides[@]}"
}

# Runs each line of its input, prints how long it took, and counts failures at the end.
run_here() {
  local line started failed=0
  while read -r line; do
    echo "$line"
    started=$(date +%s)
    # Evaluate the line because it is quoted for a shell, with the Python of the environment.
    eval "\"\$python\" ${line#python }" < /dev/null || failed=$((failed + 1))
    echo "took $(($(date +%s) - started)) s"
  done
  [ "$failed" = 0 ] || echo "$failed runs failed. The table names the missing ones." >&2
}

# Plans each line, but only one seed of each run; fails if one does not fit the target.
plan() {
  local line word words flags
  declare -A planned
  while read -r line; do
    words=() flags=()
    # Evaluate the line because it is quoted for a shell.
    eval "flags=(${line#python -m cat_jax.main })"
    for word in "${flags[@]}"; do
      case $word in
        --workdir=* | --config.seed=*) ;;
        *) words+=("$word") ;;
      esac
    done
    [ -z "${planned[${words[*]}]:-}" ] || continue
    planned[${words[*]}]=yes
    "$python" -m cat_jax.plan --target="$target" "${words[@]}" < /dev/null >&2 ||
      fail "cat_jax.plan failed, or the run does not fit $target: ${words[*]}. Nothing is submitted."
  done
}

# Prints one sbatch command, with its job script, for all lines.
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

# Prints a gcloud command for each line, which every host of the TPU runs.
for_tpu() {
  local line
  while read -r line; do
    tpu_command "${line#python } --cluster=tpu"
  done
}

commands=$(list_runs)
case $where in
  slurm)
    [ -z "$commands" ] || {
      [ -z "$target" ] || plan <<< "$commands"
      for_slurm <<< "$commands"
    }
    ;;
  tpu) [ -z "$commands" ] || for_tpu <<< "$commands" ;;
  local)
    [ -z "$commands" ] || run_here <<< "$commands"
    "$python" -m cat_jax.report --table="$table" --runs="$runs" "${options[@]}" "${printing[@]}"
    ;;
esac
