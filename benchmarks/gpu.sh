#!/usr/bin/env bash
# Measures one GPU in at most 9 minutes: golden numbers, what a training step costs, PGD-20 beside PyTorch's
# compiler, and MNIST trained with all of its epochs. docs/performance.md has the targets.
#
#   CAT_JAX_DATA=FOLDER benchmarks/gpu.sh [OUT]
#
# Needs an environment with requirements-cuda.txt and the extra `test`; PYTHON names its Python. PGD also
# needs PyTorch. OUT, by default gpu/, gets NAME.log of every stage and NAME.json of every benchmark. A stage
# that fails or exceeds its time limit does not keep the others from running; the exit status is then 1.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
out=${1:-gpu}
mkdir -p "$out" || exit
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
data=${CAT_JAX_DATA:?names the folder with mnist and cifar10 prepared}
failed=0

# NAME, time limit in seconds, arguments of Python. Ctrl-C lets a training run save.
stage() {
  local name=$1 limit=$2
  shift 2
  printf '\n==== %s: python %s\n' "$name" "$*"
  timeout --signal=INT --kill-after=25 "$limit" "${PYTHON:-python}" "$@" 2>&1 | tee "$out/$name.log"
  local status=${PIPESTATUS[0]}
  [ "$status" -eq 0 ] || { printf '==== %s failed: status %s\n' "$name" "$status"; failed=1; }
}

# NAME, time limit, config and flags of benchmarks.step_cost.
cost() {
  stage "$1" "$2" -m benchmarks.step_cost --config="$3" --config.data_dir="$data" --out="$out/$1.json" "${@:4}"
}

nvidia-smi | tee "$out/machine.log"
JAX_DEFAULT_MATMUL_PRECISION=highest JAX_DISABLE_MOST_OPTIMIZATIONS=0 \
  stage golden 140 -m pytest -q -W ignore -k "golden and not split_over" tests/test_losses_golden.py \
  tests/test_networks_golden.py tests/test_attacks_golden.py tests/test_train_step_golden.py
cost preact_bfloat16 70 configs/preact_cifar10.py:cat_cw --config.precision=bfloat16 --steps=30
cost mnist_float32 45 configs/mnist.py:cat_cw --config.steps_per_dispatch=50 --steps=50
stage train_mnist 150 -m cat_jax.main --config=configs/mnist.py:cat_cw --workdir="$out/mnist" \
  --config.data_dir="$data" --config.steps_per_dispatch=50 --config.evaluation=quick
cost wrn_bfloat16 110 configs/wrn_cifar10.py:cat_cw --config.precision=bfloat16 --config.remat=True --nophases
cost preact_float32 60 configs/preact_cifar10.py:cat_cw --steps=10
stage pgd 75 benchmarks/pgd_on_gpu.py --out="$out/pgd.json"
exit "$failed"
