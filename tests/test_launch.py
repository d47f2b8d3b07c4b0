"""launch/: what starts several processes; with stubs in place of SLURM, gcloud and the training."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pages
import pytest
import yaml

from cat_jax import main

ROOT = pathlib.Path(__file__).parent.parent
LAUNCH = ROOT / "launch"
PATHS = [str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
SHELLCHECK = shutil.which("shellcheck", path=os.pathsep.join(PATHS))
# Ends with the next status of those in the file `statuses`, and writes down how it was called.
STUB = """#!/usr/bin/env bash
case $* in *socket*) echo 1234; exit ;; esac
line=$(printf '%q ' "${{0##*/}}" "$@"); echo "$line" >> {folder}/log  # At once: others write too.
exec 9>> {folder}/lock; flock 9
status=$(head -n 1 {folder}/statuses); sed -i 1d {folder}/statuses
exit "${{status:-0}}"
"""


@pytest.fixture
def stubbed(tmp_path):
    """(run a script where the training and `names` are stubs, what they were called with)."""
    shutil.copytree(LAUNCH, tmp_path / "launch")
    with open(tmp_path / "launch" / "_setup.sh", "a") as stream:
        stream.write(f"\nset_up() {{ python={tmp_path}/bin/python; }}\n")
    (tmp_path / "bin").mkdir()
    for name in ("python", "srun", "scontrol", "gcloud"):
        (tmp_path / "bin" / name).write_text(STUB.format(folder=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)

    def run(*command, statuses=(), **more):
        (tmp_path / "statuses").write_text("".join(f"{status}\n" for status in statuses))
        (tmp_path / "log").write_text("")
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", *command],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "PAUSE": "0"} | more,
            text=True,
            capture_output=True,
            check=False,
        )
        return done, [shlex.split(line) for line in (tmp_path / "log").read_text().splitlines()]

    return run


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
def test_scripts_pass_shellcheck():
    scripts = [*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch"), *ROOT.glob(".ci/run")]
    scripts += ROOT.glob("benchmarks/*.sh")
    done = subprocess.run(
        [SHELLCHECK, "-x", *scripts], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_local_starts_each_process_once_and_ends_as_they_do(stubbed):
    done, called = stubbed("launch/local.sh", "3", "--workdir=my run")
    assert done.returncode == 0, done.stderr
    flags = {tuple(words[3:]) for words in called}
    common = ("--workdir=my run", "--coordinator=localhost:1234", "--num_processes=3")
    assert flags == {(*common, f"--process_id={i}") for i in range(3)}
    assert stubbed("launch/local.sh", "2", statuses=[137])[0].returncode == 75
    assert stubbed("launch/local.sh", "2", statuses=[75, 2])[0].returncode == 2
    done, called = stubbed("launch/local.sh", "two")
    assert done.returncode == 1 and not called
    assert done.stderr.startswith("error: the number of processes is 'two'; expected")


def test_local_kills_a_process_that_is_stuck_after_another_has_failed(stubbed, tmp_path):
    """A process is stuck if it is stopped, or if it hangs and ignores signals."""
    stuck = tmp_path / "stuck"
    stuck.touch()
    (tmp_path / "bin" / "python").write_text(
        "#!/usr/bin/env bash\n[ $1 != -c ] || { echo 1234; exit; }\n"
        f"others_are_stuck() {{ [ $(wc -l < {stuck}) = 2 ]; }}\n"
        "case $* in *process_id=0*) until others_are_stuck; do sleep 0.05; done; exit 134 ;; esac\n"
        f"trap '' TERM\necho $$ >> {stuck}\nwhile :; do sleep 0.05; done\n"
    )
    started = time.monotonic()
    done, _ = stubbed("launch/local.sh", "3", GRACE="2")
    assert done.returncode == 75 and time.monotonic() - started > 1
    assert "process 0 ended with status 134" in done.stderr
    assert "Killing process 1 2: still running 2 s after another failed." in done.stderr
    for process in map(int, stuck.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_every_script_names_the_data_by_an_absolute_path(stubbed, tmp_path):
    """cat_jax reads CAT_JAX_DATA itself, and the scripts go to the root of the repository."""
    script = f"cd {tmp_path}/bin; . {LAUNCH}/_setup.sh; bash -c 'echo $CAT_JAX_DATA'"
    done, _ = stubbed("-c", script, CAT_JAX_DATA="my data")
    assert done.stdout == f"{tmp_path}/bin/my data\n"


def test_a_python_that_cannot_be_run_is_not_called_too_old(stubbed, tmp_path):
    shim = tmp_path / "bin" / "python3.12"
    setup = ("-c", f"PYTHON={shim}; . {LAUNCH}/_setup.sh && find_python")
    for script, message in (
        ("echo 'shim: 3.12 is not installed' >&2; exit 127", "cannot be run as Python: shim: 3.12"),
        ("[ $1 != -c ] || echo 3.10; exit 1", "is Python 3.10; name 3.11 or later"),
    ):
        shim.write_text(f"#!/usr/bin/env bash\n{script}\n")
        shim.chmod(0o755)
        done, _ = stubbed(*setup)
        assert done.returncode == 1 and f"error: PYTHON={shim} {message}" in done.stderr


def test_preemptible_starts_again_until_it_is_done_or_there_is_something_to_mend(stubbed):
    command = ("launch/preemptible.sh", "python", "-m", "x")
    for statuses, times, status in (
        ([75, 137, 0, 0], 3, 0),
        ([1, 2, 0], 2, 2),
        ([1] * 9, 5, 1),
    ):
        done, called = stubbed(*command, statuses=statuses)
        assert (len(called), done.returncode) == (times, status), done.stderr
        assert called[0] == ["python", "-m", "x", "--stopped_status=75"]


@pytest.mark.parametrize("slow", ["nothing", r"child=\$!"])
def test_preemptible_hands_a_signal_on_and_does_not_start_again(tmp_path, slow):
    """Also one that comes after the command has begun, and before the script knows its process."""
    (tmp_path / "run").write_text(
        f"trap 'exit 75' TERM\necho >> {tmp_path}/log\nwhile :; do sleep 0.05; done\n"
    )
    (tmp_path / "slow").write_text(f"""trap '[ "$BASH_COMMAND" != "{slow}" ] || sleep 1' DEBUG\n""")
    started = subprocess.Popen(
        ["bash", LAUNCH / "preemptible.sh", "bash", tmp_path / "run"],
        stderr=subprocess.PIPE,
        env={**os.environ, "BASH_ENV": str(tmp_path / "slow")},
    )
    while not (tmp_path / "log").exists() and started.poll() is None:
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=20)
    assert started.returncode == 75 and (tmp_path / "log").read_text() == "\n"


def test_local_hands_on_a_signal_that_comes_while_it_starts(stubbed, tmp_path):
    (tmp_path / "bin" / "python").write_text(
        "#!/usr/bin/env bash\n[ $1 != -c ] || { echo 1234; exit; }\n"
        "trap 'exit 75' TERM\nfor ((i = 0; i < 200; i++)); do sleep 0.05; done\n"
    )
    (tmp_path / "early").write_text(
        """trap '[ "$BASH_COMMAND" != "processes+=(\\$!)" ] || kill -TERM $$' DEBUG\n"""
    )
    started = time.monotonic()
    done, _ = stubbed("launch/local.sh", "2", BASH_ENV=str(tmp_path / "early"))
    assert done.returncode == 75 and time.monotonic() - started < 5


def test_slurm_asks_for_what_the_run_takes_and_queues_itself_again(stubbed, tmp_path):
    lines = re.findall(r"^#SBATCH (.*)$", (LAUNCH / "slurm.sbatch").read_text(), re.M)
    options = dict(re.fullmatch(r"--([a-z-]+)(?:=(\S+))?", line).groups() for line in lines)
    # One process for each GPU: jax gives the process of local number i the GPU i.
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", options["time"])
    assert re.fullmatch(r"TERM@\d+", options["signal"]) and options["requeue"] is None
    assert {"nodes", "output", "job-name", "cpus-per-task", "open-mode"} < options.keys()
    environment = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    command = ("launch/slurm.sbatch", "--workdir=x")
    for status, requeued in ((0, 0), (2, 0), (75, 1), (137, 1)):
        done, called = stubbed(*command, statuses=[status], **environment, LEAST="0")
        assert done.returncode == status and called[0][0] == "srun", done.stderr
        assert called[0][3:] == [
            *("-m", "cat_jax.main", "--workdir=x", "--cluster=slurm", "--stopped_status=75")
        ]
        assert called[1:] == [["scontrol", "requeue", "7"]] * requeued
    at_once = stubbed(*command, statuses=[75], **environment)
    assert len(at_once[1]) == 1


def test_every_host_of_a_tpu_runs_the_same_command(stubbed):
    done, called = stubbed("launch/tpu_vm.sh", "--workdir=my run", TPU="vm", ZONE="here")
    assert done.returncode == 0, done.stderr
    assert called[0][:7] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "vm", "--zone=here"]
    assert "--worker=all" in called[0]
    remote = called[0][-1].removeprefix("--command=").split(" && ")
    assert remote[:3] == ["cd cat_jax", ". launch/_setup.sh", "set_up tpu"]
    want = ["$python", "-m", "cat_jax.main", "--workdir=my run", "--cluster=tpu"]
    assert shlex.split(remote[3]) == want
    done, called = stubbed("launch/tpu_vm.sh", "--workdir=x")
    assert done.returncode == 1 and "no TPU VM is named" in done.stderr and not called


# What of a JobSet's schema we use: a field's type, or those within. A list holds one kind of thing.
JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": str},
    "spec": {
        "failurePolicy": {
            "maxRestarts": int,
            "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
        "replicatedJobs": [
            {
                "name": str,
                "replicas": int,
                "template": {
                    "spec": {
                        "parallelism": int,
                        "completions": int,
                        "completionMode": "Indexed",
                        "backoffLimit": int,
                        "podFailurePolicy": {
                            "rules": [
                                {
                                    "action": "FailJob",
                                    "onExitCodes": {
                                        "containerName": str,
                                        "operator": "In",
                                        "values": [int],
                                    },
                                }
                            ]
                        },
                        "template": {
                            "spec": {
                                "restartPolicy": "Never",
                                "terminationGracePeriodSeconds": int,
                                "containers": [
                                    {
                                        "name": str,
                                        "image": str,
                                        "args": [str],
                                        "resources": {"limits": {"nvidia.com/gpu": int}},
                                        "volumeMounts": [{"name": str, "mountPath": str}],
                                    }
                                ],
                                "volumes": [
                                    {"name": str, "persistentVolumeClaim": {"claimName": str}}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}


def misfits(value, schema, path=""):
    """Where a value is not as the schema has it."""
    if isinstance(schema, dict):
        if not isinstance(value, dict) or value.keys() != schema.keys():
            return [path]
        return [bad for key in schema for bad in misfits(value[key], schema[key], f"{path}.{key}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [path]
        return [bad for item in value for bad in misfits(item, schema[0], f"{path}[]")]
    fits = type(value) is schema if isinstance(schema, type) else value == schema
    return [] if fits else [path]


def test_the_jobset_fits_its_schema_and_itself():
    jobset = yaml.safe_load((LAUNCH / "k8s" / "jobset.yaml").read_text())
    assert misfits(jobset, JOBSET) == []
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    args = dict(arg.removeprefix("--").split("=", 1) for arg in container["args"])
    known = set(main.flags.FLAGS) | {"config.data_dir"}
    assert args.keys() <= known
    assert (ROOT / args["config"].partition(":")[0]).is_file()
    hosts = job["parallelism"]
    assert hosts == job["completions"] == int(args["num_processes"]) and replicated["replicas"] == 1
    # A pod of a JobSet is called JobSet-job-replica-index, in the domain of the JobSet.
    name = jobset["metadata"]["name"]
    assert args["coordinator"] == f"{name}-{replicated['name']}-0-0.{name}:1234"
    assert args["process_id"] == "$(JOB_COMPLETION_INDEX)"
    rule = job["podFailurePolicy"]["rules"][0]["onExitCodes"]
    assert rule["values"] == [2] and rule["containerName"] == container["name"]
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    assert all(args[flag].startswith("/volume/") for flag in ("workdir", "config.data_dir"))


def test_the_image_is_made_of_what_there_is_for_each_kind_of_device():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = {line.split()[0] for line in lines}
    assert words == {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENTRYPOINT"}, words
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert {"cat_jax", "configs", "setup.cfg"} < set(copied)
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert not {name.partition("/")[0] for name in copied} & set(ignored)
    kinds = {"cpu", "cuda", "tpu"}  # That of CPUs is a link, which the image makes.
    assert all(f"requirements-{kind}.txt" in copied for kind in kinds - {"cpu"})
    assert "ARG KIND=cpu" in lines and "requirements.txt" in copied
    assert any("ln -s requirements.txt requirements-cpu.txt" in line for line in lines)
    assert 'ENTRYPOINT ["python", "-m", "cat_jax.main"]' in lines
    told = re.findall(r"--build-arg KIND=(\w+)", text + (ROOT / "docs" / "scaling.md").read_text())
    assert told and set(told) <= kinds


def test_the_measurements_of_a_gpu_go_on_after_a_failure(stubbed, tmp_path):
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    where = {"CAT_JAX_DATA": "/data", "PYTHON": str(tmp_path / "bin" / "python")}
    done, called = stubbed("benchmarks/gpu.sh", "out", statuses=[1], **where)
    assert done.returncode == 1 and "==== golden failed: status 1" in done.stdout
    logs = {path.stem for path in (tmp_path / "out").glob("*.log")} - {"machine"}
    assert len(called) == len(logs) == 7, "all of the stages"
    for words in called:
        assert pages.faults_of_commands(shlex.join(words)) == []
    assert stubbed("benchmarks/gpu.sh", "out", **where)[0].returncode == 0
