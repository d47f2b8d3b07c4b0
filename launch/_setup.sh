# shellcheck shell=bash
# The other scripts source this file. It changes to the repository root and defines
#
#   set_up runtime|dev|cuda|tpu   creates or completes the virtual environment and sets $python to its
#                                 Python; cuda and tpu add packages for NVIDIA GPUs and TPUs
#
# Environment: PYTHON, a Python of 3.11 or later for a new environment; VENV, folder of the environment,
# by default .venv in the repository root; CAT_JAX_DATA, folder of prepared data sets. Each may be relative
# to the caller's folder. A finished set-up writes a stamp into VENV, so that the next call installs nothing.
# Messages go to standard error, because standard output may be piped into bash.

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

# Prints the version of Python $1, such as 3.11; fails if $1 is missing or too old.
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

# Prints the Python for a new environment: PYTHON, or the first on the path that is new enough.
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

# Creates $VENV if it is missing or broken, or if its first installation did not finish.
make_venv() {
  local base wanted present
  present=$(python_version "$VENV/bin/python" || true)
  if [ -n "$present" ] && [ ! -e "$VENV/.cat_jax-unfinished" ]; then
    python_version "$VENV/bin/python" > /dev/null ||
      fail "$VENV has Python $present; expected 3.11 or later. Remove that folder, or set VENV to another."
    if [ -n "${PYTHON:-}" ]; then
      base=$(find_python)
      wanted=$(python_version "$base")
      [ "$wanted" = "$present" ] ||
        fail "$VENV has Python $present, but PYTHON is $wanted. Remove that folder, or set VENV to another."
    fi
    return
  fi
  if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$VENV")" ]; then
    fail "$VENV exists but is not a virtual environment. Set VENV to another folder."
  fi
  base=$(find_python)
  wanted=$(python_version "$base")
  "$base" -c 'import ensurepip, venv' 2> /dev/null ||
    fail "Python $wanted lacks venv or ensurepip. On Debian and Ubuntu: apt-get install python$wanted-venv"
  echo "Creating a virtual environment with Python $wanted in $VENV" >&2
  "$base" -m venv --clear "$VENV"
  touch "$VENV/.cat_jax-unfinished"
}

# Prints a digest of the folder, the Python and the requirements that an environment depends on.
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
  # Because an environment for dev, cuda or tpu serves runtime too.
  if grep -qsxe "$now $kind" "$VENV/.cat_jax-stamp" ||
    { [ "$kind" = runtime ] && grep -qs "^$now " "$VENV/.cat_jax-stamp"; }; then
    return
  fi
  echo "Installing $requirements and cat_jax into $VENV (about 1 GB, a few minutes)" >&2
  rm -f "$VENV/.cat_jax-stamp"
  "$python" -m pip --version > /dev/null 2>&1 || "$python" -m ensurepip > /dev/null
  "$python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements" -e . >&2 ||
    fail "pip could not install $requirements. If this node has no network, first run" \
      "'launch/set_up.sh $kind' on a node that has one, such as the login node."
  echo "$now $kind" > "$VENV/.cat_jax-stamp"
  rm -f "$VENV/.cat_jax-unfinished"
}

# Prints the gcloud command that runs Python with the arguments $1, quoted for a shell, on every host of
# the TPU VM TPU in zone ZONE.
tpu_command() {
  if [ -z "${TPU:-}" ] || [ -z "${ZONE:-}" ]; then
    fail "no TPU VM is named. Name it and its zone: TPU=... ZONE=... $0"
  fi
  printf 'gcloud compute tpus tpu-vm ssh %q --zone=%q --worker=all --command=%q\n' \
    "$TPU" "$ZONE" "cd cat_jax && . launch/_setup.sh && set_up tpu && \"\$python\" $1"
}
