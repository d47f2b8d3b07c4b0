#!/usr/bin/env bash
# Runs a command again and again until it is done, whether a signal, a lost process or a device stops it.
#
#   launch/preemptible.sh python -m cat_jax.main --config=... --workdir=...
#   launch/preemptible.sh launch/local.sh 2 --config=... --workdir=...
#
# Each start resumes from the last checkpoint. The script ends when the command is done, when it exits with
# status 2 (a user error), or after 5 starts in a row that last less than a minute each. It passes SIGTERM
# and Ctrl-C to the command, which saves, and then ends. PAUSE is the number of seconds between two starts,
# by default 10.
set -euo pipefail
[ $# -gt 0 ] || { echo "error: no command is given. Expected a command such as: $0 launch/local.sh 2" >&2; exit 2; }

stopping='' child='' forwarded=''
forward_signal() {
  forwarded=yes
  kill -TERM "$child" 2> /dev/null || true
}
trap 'stopping=yes; [ -z "$child" ] || forward_signal' INT TERM
short=0
while :; do
  started=$SECONDS status=0
  "$@" --stopped_status=75 &
  child=$!
  # Because a signal since the end of the last command found none.
  if [ -n "$stopping" ] && [ -z "$forwarded" ]; then forward_signal; fi
  wait "$child" || status=$?
  while kill -0 "$child" 2> /dev/null; do  # Because a signal to this script ends the wait.
    status=0
    wait "$child" || status=$?
  done
  if [ "$status" = 0 ] || [ "$status" = 2 ]; then exit "$status"; fi
  if [ -n "$stopping" ]; then exit "$status"; fi
  if [ $((SECONDS - started)) -lt 60 ]; then short=$((short + 1)); else short=0; fi
  if [ "$short" = 5 ]; then
    echo "error: the command stopped with status $status within a minute, five times in a row. Its messages are above." >&2
    exit "$status"
  fi
  echo "The command stopped with status $status. Starting it again." >&2
  sleep "${PAUSE:-10}" &
  child=$!
  wait "$child" || true
  child=''
  [ -z "$stopping" ] || exit "$status"
done
