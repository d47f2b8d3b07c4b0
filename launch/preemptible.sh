#!/usr/bin/env bash
# A command that is run again until it is done, whatever stops it: a signal, a lost process or device.
#
#   launch/preemptible.sh python -m cat_jax.main --config=... --workdir=...
#   launch/preemptible.sh launch/local.sh 2 --config=... --workdir=...
#
# Each start resumes from the last checkpoint. The script ends when the command is done, or has status 2, an
# error of the user; and after 5 starts in a row that lasted less than a minute each. SIGTERM and
# Ctrl-C go to the command, which saves, and end this script. PAUSE is the seconds between two
# starts, by default 10.
set -euo pipefail
[ $# -gt 0 ] || { echo "error: no command is given; expected one such as: $0 launch/local.sh 2" >&2; exit 2; }

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
  # A signal that came since the last command ended had none to go to.
  if [ -n "$stopping" ] && [ -z "$forwarded" ]; then forward_signal; fi
  wait "$child" || status=$?
  while kill -0 "$child" 2> /dev/null; do  # It was a signal to this script that ended the wait.
    status=0
    wait "$child" || status=$?
  done
  if [ "$status" = 0 ] || [ "$status" = 2 ]; then exit "$status"; fi
  if [ -n "$stopping" ]; then exit "$status"; fi
  if [ $((SECONDS - started)) -lt 60 ]; then short=$((short + 1)); else short=0; fi
  if [ "$short" = 5 ]; then
    echo "error: stopped with status $status for the fifth time within a minute; see above." >&2
    exit "$status"
  fi
  echo "Stopped with status $status; starting again." >&2
  sleep "${PAUSE:-10}" &
  child=$!
  wait "$child" || true
  child=''
  [ -z "$stopping" ] || exit "$status"
done
