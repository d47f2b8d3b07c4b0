#!/usr/bin/env bash
# Creates or completes the virtual environment and runs nothing. Use it on the login node of a cluster whose
# compute nodes have no network.
#
#   launch/set_up.sh [runtime | dev | cuda | tpu]
#
# PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"
case ${1:-runtime} in
  runtime | dev | cuda | tpu) set_up "${1:-runtime}" ;;
  *) fail "the kind of environment is '$1'; expected runtime, dev, cuda or tpu." ;;
esac
