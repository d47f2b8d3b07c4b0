#!/usr/bin/env bash
# One run on all hosts of a Cloud TPU VM, which train as one.
#
#   TPU=NAME ZONE=ZONE launch/tpu_vm.sh [flags of cat_jax.main]
#
# The home folder of each host has this repository in cat_jax/; the environment in it is made at the
# first run. --workdir and --config.data_dir are folders of the hosts; process 0 alone uses the workdir,
# so that it may be its own, but a disk or bucket outlives the TPU. To go on after a preemption:
# launch/preemptible.sh launch/tpu_vm.sh ... with TPU and ZONE in the environment.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

line=$(printf '%q ' -m cat_jax.main "$@" --cluster=tpu)
command=$(tpu_command "$line")
eval "$command"
