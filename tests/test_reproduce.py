"""launch/reproduce.sh: it runs what is not done, goes on after a failure, and prints the table."""

import functools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest
from slow_cases import slow

ROOT = pathlib.Path(__file__).parent.parent
# In place of the environment's Python: the report is the real one, a run is only written down.
STUB = """#!/usr/bin/env bash
if [ "$2" = cat_jax.report ]; then exec {python} "$@"; fi
printf '%q ' "$@" >> {log}; echo >> {log}
for word in "$@"; do case $word in --workdir=*) mkdir -p "${{word#*=}}" ;; esac; done
case $* in *at_epsilon_0.4* | *plan*epsilon=0.4*) exit 2 ;; esac
"""


@pytest.fixture
def reproduce(tmp_path):
    """(run it with these arguments, the lines of what was trained)."""
    launch, log, stub = tmp_path / "launch", tmp_path / "log", tmp_path / "stub"
    shutil.copytree(ROOT / "launch", launch)
    stub.write_text(STUB.format(python=sys.executable, log=log))
    stub.chmod(0o755)
    with open(launch / "_setup.sh", "a") as stream:
        stream.write(f"\nset_up() {{ python={stub}; echo $1 > {tmp_path}/kind; }}\n")

    def run(*arguments, **more):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "CAT_JAX_DATA": "my data"} | more
        return subprocess.run(
            ["bash", launch / "reproduce.sh", *arguments],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )

    return run, lambda: log.read_text().splitlines()


@pytest.mark.slow
def test_runs_follow_each_other_and_then_comes_the_table(reproduce, tmp_path):
    run, trained = reproduce
    done = run("mnist", "--scale=0.05", "--seeds=0", "--config.log_every=7", RUNS="my runs")
    assert done.returncode == 0, done.stderr
    assert len(trained()) == 8, "the second one fails, the others run"
    words = shlex.split(trained()[0])
    assert words[:3] == ["-m", "cat_jax.main", "--config=cat_jax:mnist:at"]
    assert words[3].startswith(f"--workdir={tmp_path}/my runs/mnist_at_epsilon_0.3")
    assert f"--config.data_dir={tmp_path}/my data" in words and "--config.log_every=7" in words
    assert "--config.optimizer.drop_epochs=(1,)" in words
    assert "--config.num_epochs=2" in words and not any("num_steps" in word for word in words)
    assert "1 runs failed" in done.stderr
    assert "SCALED: 0.05" in done.stdout and "Runs done: 0 of 8" in done.stdout


def test_for_slurm_one_array_is_printed_whose_tasks_are_the_runs(reproduce, tmp_path):
    """Piped into bash, where the environment had to be made first; then two of its tasks."""
    run, trained = reproduce
    with open(tmp_path / "launch" / "_setup.sh", "a") as stream:
        stream.write(
            '\nmade=$(declare -f set_up)\nset_up() { echo Installing >&2; eval "$made"; '
            'set_up "$@"; }\n'
        )
    done = run("mnist", "--slurm", "--seeds=0", SBATCH_OPTIONS="--time=2:00:00", VENV="my venv")
    assert (tmp_path / "kind").read_text() == "cuda\n", "also where no GPU is, as on a login node"
    assert done.returncode == 0 and done.stderr == "Installing\n"
    for name, text in (
        ("sbatch", f"printf '%s\\n' \"$@\" > {tmp_path}/options; cat > {tmp_path}/job"),
        ("srun", 'shift; exec "$@"'),
    ):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    shell = functools.partial(subprocess.run, check=False, cwd=tmp_path, text=True)
    assert shell(["bash"], input=done.stdout, env=environment).returncode == 0
    options = (tmp_path / "options").read_text().splitlines()
    assert options[1] == "--array=0-7" and options[-1] == "--time=2:00:00"
    assert {"--gpus=1", "--ntasks=1", "--requeue", "--signal=TERM@120", f"--chdir={tmp_path}"} < {
        *options
    }
    for task, status in (("0", 0), ("1", 2)):  # The stub fails the second run.
        done = shell(["bash", "job"], env=environment | {"SLURM_ARRAY_TASK_ID": task})
        assert done.returncode == status
    for line, row in zip(trained(), ("epsilon_0.3", "epsilon_0.4"), strict=True):
        words = shlex.split(line)
        assert words[:3] == ["-m", "cat_jax.main", "--config=cat_jax:mnist:at"]
        assert row in words[3] and f"--config.data_dir={tmp_path}/my data" in words
        assert words[-2:] == ["--cluster=slurm", "--stopped_status=75"]


@pytest.mark.slow
def test_before_slurm_gets_the_runs_each_kind_is_planned_once(reproduce):
    run, planned = reproduce
    done = run("mnist", "--slurm", "--plan=h100", "--seeds=0,1")
    assert done.returncode == 1 and done.stdout == "", "the stub refuses one kind of run"
    assert "does not fit h100: --config=cat_jax:mnist:at" in done.stderr
    flags = [shlex.split(line) for line in planned()]
    assert len(flags) == 2, "the second one fails"
    assert all(words[:3] == ["-m", "cat_jax.plan", "--target=h100"] for words in flags)
    assert not any("--workdir" in word or "seed" in word for words in flags for word in words)
    assert run("mnist", "--plan=h100").stderr.startswith("error: --plan needs --slurm")


@pytest.mark.slow
def test_for_a_tpu_commands_are_printed(reproduce):
    run, _ = reproduce
    done = run("mnist", "--tpu", "--seeds=0", TPU="vm", ZONE="here")
    words = shlex.split(done.stdout.splitlines()[0])
    assert words[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "vm"]
    assert words[-1].startswith("--command=cd cat_jax && . launch/_setup.sh && set_up tpu && ")
    assert words[-1].endswith(" --cluster=tpu")
    assert "--workdir=runs/mnist_at" in words[-1] and "'--config.data_dir=my data'" in words[-1]


@pytest.mark.parametrize(
    "arguments, what",
    [
        ([], "no table is named"),
        (["mnist", "--scael=1"], "--scael=1 is not a flag"),
        (["mnits"], "Table 'mnits' is unknown"),
        slow(["mnist", "--tpu"], "no TPU VM is named"),
    ],
)
def test_what_is_wrong_is_said(reproduce, arguments, what):
    done = reproduce[0](*arguments)
    assert done.returncode != 0 and what in done.stderr
    assert done.stderr.count("\n") == 1
