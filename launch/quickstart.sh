#!/usr/bin/env bash
# From nothing but Python (3.11 or later) to two trained networks and a table of their accuracy:
# handwritten digits, a few minutes on two CPU cores, no data download.
#
#   launch/quickstart.sh [flags of cat_jax.main]
#
# Makes .venv at the first run. A run that was stopped continues from its last checkpoint.
# PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"
set_up runtime

echo "Training without adversarial examples: runs/digits_standard"
"$python" -m cat_jax.main --config=configs/digits.py:standard --workdir=runs/digits_standard "$@"
echo "Calibrated adversarial training: runs/digits"
"$python" -m cat_jax.main --config=configs/digits.py --workdir=runs/digits "$@"
"$python" -m cat_jax.report runs/digits_standard runs/digits
