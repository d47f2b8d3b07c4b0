#!/usr/bin/env bash
# What one bare GPU machine reaches, beside what it should: golden numbers, speed of a step and of the
# attack, MNIST trained whole, CIFAR-10 trained for the time that is left. At most 8 minutes.
#
#   CAT_JAX_DATA=FOLDER launch/gpu_report.sh [--seconds=480] [--scale=small]
#
# Nothing is downloaded. Python, by default python3, is one with jax for the GPU; what it lacks else
# is in the folder WHEELS, as wheels for it. Where there is PyTorch, PGD is timed beside it, under
# torchattacks if it is there.
#
# OUT, by default gpu_report, gets report.json, report.md and log.txt, rewritten after each stage: a run
# that is cut off leaves them. RUNS, by default OUT/runs, gets the runs, of which that on CIFAR-10 is
# saved at the end (CIFAR_WORKDIR, by default RUNS/cifar10; a checkpoint of it has 180 MB): a later
# report with the same folder goes on from it. --scale=small takes digits in place of both data sets,
# in two minutes on a CPU.
set -euo pipefail
out=${OUT:-gpu_report}
case $out in /*) ;; *) out=$PWD/$out ;; esac
for name in RUNS CIFAR_WORKDIR WHEELS; do
  value=${!name:-}
  case $value in "" | /*) ;; *) export "$name=$PWD/$value" ;; esac
done
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

python=${PYTHON:-python3}
python_version "$python" > /dev/null || fail "$python is not Python 3.11 or later; name one: PYTHON=..."
path=$PWD
if [ -n "${WHEELS:-}" ]; then
  site=$(mktemp -d)
  "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile \
    --target "$site" "$WHEELS"/*.whl
  path=$path:$site
fi
export PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" benchmarks/gpu_report.py --out="$out" "$@"
