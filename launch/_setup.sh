# shellcheck shell=bash
# Sourced by the scripts beside it. Goes to the repository root and defines
#
#   set_up runtime|dev|cuda|tpu   make the virtual environment, or complete it, and set $python to its
#                                 Python; cuda and tpu are runtime with what NVIDIA GPUs and TPUs need
#
# Environment: PYTHON, the Python (3.11 or later) to make it with; VENV, its folder, by default .venv
# in the repository root; CAT_JAX_DATA, the prepared data sets. All may be relative to the caller's
# folder. A finished set-up leaves a stamp in VENV, so that the next call installs nothing. Messages go to
# standard error: standard output is for commands that are piped into bash.

fail() {
  echo "error: $*" >&2
  exit 1
}

absolute() {
  case $1 in
    /*) echo "$1" ;;
    *) echo "$PWD/$1" ;;
  esac
}

VENV=${VENV:+$(absolute "$VENV")}
case ${PYTHON:-} in */*) PYTHON=$(absolute "$PYTHON") ;; esac
if [ -n "${CAT_JAX_DATA:-}" ]; then
  CAT_JAX_DATA=$(absolute "$CAT_JAX_DATA")
  export CAT_JAX_DATA
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
VENV=${VENV:-$PWD/.venv}

# Prints the version of Python $1, such as 3.11; fails if there is none or it is too old.
python_version() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' \
    2> /dev/null
}

# Fails unless $1 is Python 3.11 or later.
check_python() {
  local version
  version=$(python_version "$1") && return
  [ -n "$version" ] ||
    fail "PYTHON=$1 cannot be run as Python: $("$1" -c '' 2>&1 | tail -n 1); name another, such as PYTHON=python3.12."
  fail "PYTHON=$1 is Python $version; name 3.11 or later, such as PYTHON=python3.12."
}

# The Python to make the environment with: PYTHON, or the first on the path that is new enough.
find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    check_python "$PYTHON"
    echo "$PYTHON"
    return
  fi
  for candidate in python3.12 python3.11 python3; do
    if python_version "$candidate" > /dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or later on the path; install one, or name it: PYTHON=/path/to/python3.12 $0"
}

# Makes $VENV, unless it is there; anew if it is broken, or if its first installation did not end.
make_venv() {
  local base wanted present
  present=$(python_version "$VENV/bin/python" || true)
  if [ -n "$present" ] && [ ! -e "$VENV/.cat_jax-unfinished" ]; then
    python_version "$VENV/bin/python" > /dev/null ||
      fail "$VENV has Python $present, and 3.11 is the least; remove that folder, or set VENV to another."
    if [ -n "${PYTHON:-}" ]; then
      base=$(find_python)
      wanted=$(python_version "$base")
      [ "$wanted" = "$present" ] ||
        fail "$VENV has Python $present, but PYTHON is $wanted; remove that folder, or set VENV to another."
    fi
    return
  fi
  if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$VENV")" ]; then
    fail "$VENV is there and is not a virtual environment; set VENV to another folder."
  fi
  base=$(find_python)
  wanted=$(python_version "$base")
  "$base" -c 'import ensurepip, venv' 2> /dev/null ||
    fail "Python $wanted lacks venv or ensurepip; on Debian and Ubuntu: apt-get install python$wanted-venv"
  echo "Making a virtual environment with Python $wanted in $VENV" >&2
  "$base" -m venv --clear "$VENV"
  touch "$VENV/.cat_jax-unfinished"
}

# What an environment depends on: another place, Python or requirement gives another digest.
digest() {
  "$python" - "$@" << 'END'
import hashlib, os, sys
files = b"".join(open(name, "rb").read() for name in sys.argv[1:])
print(hashlib.sha256(f"{os.getcwd()} {sys.version}".encode() + files).hexdigest())
END
}

set_up() {
  local kind=$1 requirements=requirements.txt now
  [ "$kind" = runtime ] || requirements="requirements-$kind.txt"
  make_venv
  python=$VENV/bin/python
  now=$(digest setup.cfg pyproject.toml requirements.txt requirements-dev.txt requirements-cuda.txt \
    requirements-tpu.txt)
  # What is installed for dev, cuda or tpu serves runtime too.
  if grep -qsxe "$now $kind" "$VENV/.cat_jax-stamp" ||
    { [ "$kind" = runtime ] && grep -qs "^$now " "$VENV/.cat_jax-stamp"; }; then
    return
  fi
  echo "Installing $requirements and cat_jax into $VENV (about 1 GB; some minutes)" >&2
  rm -f "$VENV/.cat_jax-stamp"
  "$python" -m pip --version > /dev/null 2>&1 || "$python" -m ensurepip > /dev/null
  "$python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements" -e . >&2 ||
    fail "pip did not install $requirements. A compute node may have no network: first run" \
      "'launch/set_up.sh $kind' where there is one, such as on the login node."
  echo "$now $kind" > "$VENV/.cat_jax-stamp"
  rm -f "$VENV/.cat_jax-unfinished"
}

# Prints the gcloud command with which every host of the TPU VM named by TPU, in zone ZONE, gives the
# arguments of Python $1, quoted for a shell, to the Python of its environment.
tpu_command() {
  if [ -z "${TPU:-}" ] || [ -z "${ZONE:-}" ]; then
    fail "no TPU VM is named; give it and its zone: TPU=... ZONE=... $0"
  fi
  printf 'gcloud compute tpus tpu-vm ssh %q --zone=%q --worker=all --command=%q\n' \
    "$TPU" "$ZONE" "cd cat_jax && . launch/_setup.sh && set_up tpu && \"\$python\" $1"
}
