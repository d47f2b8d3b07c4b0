#!/usr/bin/env bash
# Trains two networks on handwritten digits, attacks them and prints their accuracies. Needs Python 3.11 or
# later and no data download; takes a few minutes on two CPU cores.
#
#   launch/quickstart.sh [flags of cat_jax.main]
#
# Creates .venv on the first run. Run it again to resume from the last checkpoint.
# PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"
set_up runtime

echo "Training without adversarial examples: runs/digits_standard"
"$python" -m cat_jax.main --config=configs/digits.py:standard --workdir=runs/digits_standard "$@"
echo "Training with Calibrated Adversarial Training: runs/digits"
"$python" -m cat_jax.main --config=configs/digits.py --workdir=runs/digits "$@"
"$python" -m cat_jax.report runs/digits_standard runs/digits
