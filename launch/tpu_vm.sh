#!/usr/bin/env bash
# Trains one run on all hosts of a Cloud TPU VM.
#
#   TPU=NAME ZONE=ZONE launch/tpu_vm.sh [flags of cat_jax.main]
#
# The home folder of each host has to hold this repository in cat_jax/. The first run creates the environment
# there. --workdir and --config.data_dir are folders of the hosts. Only process 0 uses the workdir; put it on
# a disk that outlives the TPU. To resume after preemptions:
# launch/preemptible.sh launch/tpu_vm.sh ... with TPU and ZONE in the environment.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

line=$(printf '%q ' -m cat_jax.main "$@" --cluster=tpu)
command=$(tpu_command "$line")
eval "$command"
