#!/usr/bin/env bash
# Runs the default tests on two cores, without the slow ones. Creates .venv on the first run.
#
#   launch/test.sh [arguments of pytest]
#
# PYTHON, VENV and CAT_JAX_DATA: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"
set_up dev

# Tests start many processes, and each of them would compile the package's source again.
unset PYTHONDONTWRITEBYTECODE
exec "$python" -m pytest -n 2 --dist worksteal "$@"
