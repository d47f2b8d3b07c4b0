#!/usr/bin/env bash
# Trains one run with several processes on this machine.
#
#   launch/local.sh NUM_PROCESSES [flags of cat_jax.main]
#
# With NVIDIA GPUs each process gets one. Otherwise each gets DEVICES virtual CPU devices, by default 1. They
# share the cores, so this shows that a run works on many devices, and not how fast it is.
# Exits with the status of cat_jax.main: 2 after a user error, 75 if a process was lost and the same command
# resumes. When a process fails, the others get SIGTERM, and SIGKILL after GRACE seconds, by default 30, so
# that a stuck process does not block the rest. PYTHON and VENV: see launch/_setup.sh.
set -euo pipefail
# shellcheck source=launch/_setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/_setup.sh"

number=${1:-}
case $number in
  "" | *[!0-9]* | 0*) fail "the number of processes is '$number'; expected 1 or more: $0 2 --config=..." ;;
esac
shift
gpus=0
if command -v nvidia-smi > /dev/null; then
  set_up cuda
  gpus=$(nvidia-smi --list-gpus | wc -l)
  [ "$number" -le "$gpus" ] || fail "$number processes need $number GPUs, and this machine has $gpus. Start fewer processes."
else
  set_up runtime
  export XLA_FLAGS="${XLA_FLAGS:-} --xla_force_host_platform_device_count=${DEVICES:-1}"
fi
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')

processes=() stopping='' started='' forwarded=''
forward_signal() {
  forwarded=yes
  kill -TERM "${processes[@]}" 2> /dev/null || true
}
trap 'stopping=yes; [ -z "$started" ] || forward_signal' INT TERM
for ((i = 0; i < number; i++)); do
  [ "$gpus" = 0 ] || export CUDA_VISIBLE_DEVICES=$i
  "$python" -m cat_jax.main "$@" \
    --coordinator="localhost:$port" --num_processes="$number" --process_id="$i" &
  processes+=($!)
done
started=yes
# Because an earlier signal found no process.
if [ -n "$stopping" ] && [ -z "$forwarded" ]; then forward_signal; fi

# Because a process that lost another exits by itself unless it is stuck.
status=0 deadline=''
while [ "${#processes[@]}" -gt 0 ]; do
  for i in "${!processes[@]}"; do
    if kill -0 "${processes[i]}" 2> /dev/null; then continue; fi
    ended=0
    wait "${processes[i]}" || ended=$?
    unset "processes[$i]"
    [ "$ended" != 0 ] || continue
    echo "process $i ended with status $ended" >&2
    case $ended in
      2) status=2 ;;
      *) [ "$status" = 2 ] || status=75 ;;
    esac
    if [ -z "$deadline" ] && [ "${#processes[@]}" -gt 0 ]; then
      deadline=$((SECONDS + ${GRACE:-30}))
      [ -n "$stopping" ] || forward_signal
    fi
  done
  if [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ] && [ "${#processes[@]}" -gt 0 ]; then
    echo "Killing process ${!processes[*]}: still running ${GRACE:-30} s after another failed." >&2
    kill -KILL "${processes[@]}" 2> /dev/null || true
    deadline=$((SECONDS + 10))
  fi
  sleep 0.2
done
[ "$status" != 75 ] || echo "The run is not finished. Run the same command again to resume." >&2
exit "$status"
