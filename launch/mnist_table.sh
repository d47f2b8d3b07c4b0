#!/usr/bin/env bash
# The rows of the paper's MNIST table, at the full 40 epochs each: trained, attacked, and printed
# beside the published numbers. For a GPU; add --config.num_epochs=1 for a first look without one.
#
#   launch/mnist_table.sh [flags of cat_jax.main]
#
# All 60,000 images are trained on, with seed 0, and the last checkpoint is what is reported: the
# published one was chosen on the test set. A run that was stopped continues from its last
# checkpoint. MNIST has to be prepared: python -m cat_jax.data --dataset=mnist. Its folder is
# CAT_JAX_DATA, or ~/tensorflow_datasets. RUNS, by default runs/mnist_table, gets the runs. With an
# NVIDIA GPU, jax is installed for it. PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"
if command -v nvidia-smi > /dev/null; then set_up cuda; else set_up runtime; fi
runs=${RUNS:-runs/mnist_table}
workdirs=()
while read -r variant epsilon; do
  workdir=$runs/${variant}_$epsilon
  workdirs+=("$workdir")
  echo "$variant at epsilon $epsilon: $workdir"
  started=$(date +%s)
  "$python" -m cat_jax.main --config="configs/mnist.py:$variant" --workdir="$workdir" \
    --config.attack.epsilon="$epsilon" --config.num_validation=0 \
    ${CAT_JAX_DATA:+--config.data_dir="$CAT_JAX_DATA"} "$@" < /dev/null
  echo "took $(($(date +%s) - started)) s"
done << ROWS
at 0.3
at 0.4
trades 0.3
trades 0.4
cat_cent 0.3
cat_cent 0.4
cat_cw 0.3
cat_cw 0.4
ROWS
"$python" -m cat_jax.report "${workdirs[@]}"
