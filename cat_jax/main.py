"""Trains and evaluates one experiment.

    python -m cat_jax.main --config=cat_jax:digits:cat_cent --workdir=runs/digits

trains, or goes on if the workdir holds a checkpoint, and then attacks checkpoints best/ and last/:
flags in evaluation/, accuracies in results.jsonl, a table beside the published numbers.

    python -m cat_jax.main --mode=evaluate --workdir=runs/digits --config.evaluation=standard

only attacks, here as AutoAttack does.

    python -m cat_jax.main --mode=evaluate --config=cat_jax:mnist --workdir=runs/x --weights=FILE

attacks the network in a file: a published PyTorch checkpoint, or what
`python -m cat_jax.weights.export` wrote. The config names the network and the
data; results.jsonl names the file and its SHA-256.

    python -m cat_jax.main --config=cat_jax:digits --workdir=runs/s --sweep=beta1=0.1,0.3

trains one network after another, each in a folder of its own below runs/s; given again it goes on
where it stopped. Several --sweep, and --seeds=0,1,2, give every combination.

    python -m cat_jax.main --mode=verify --workdir=runs/digits

reads the files of the workdir, or of every run of a sweep, and reports damaged ones; it changes
nothing.

    python -m cat_jax.main --plugin=my_module --config=... --config.classifier.name=MyNet

imports a module of yours, which registers a network, method, attack or data set under a name. The
run remembers it.

Any field of the config can be overridden: --config.method.beta1=0.1. The fields are described in
cat_jax/configs/default.py. --quiet prints warnings and results only; programs read the results
from results.jsonl and checks.jsonl in the workdir. Ctrl-C saves; the same command then resumes.

    exit status
      0    done; or a signal stopped the training, with all saved (--stopped_status=N for another)
      1    an error of the program itself, with a traceback
      2    an error of the user, in one line; with --mode=verify: something is damaged
      75   another of several processes is gone: start all of them again
      130  Ctrl-C where there was nothing to save, as in an evaluation, or twice

    python -m cat_jax.main ... --coordinator=HOST:PORT --num_processes=2 --process_id=0

is the first of two processes that train as one; launch/ of the repository starts them in several
ways.
"""

import pathlib
import shlex
import sys
from collections.abc import Sequence

import jax
from absl import app, flags
from absl import logging as absl_logging

from cat_jax.cli import command_line, exit_status, modes
from cat_jax.cli.command_line import CONFIG, MODE, WEIGHTS, WORKDIR
from cat_jax.runtime import backend, processes, terminal

flags.adopt_module_key_flags(command_line)  # For --help.


def main(argv: Sequence[str]) -> None:
    """Runs one mode with the flags, and exits with its status."""
    del argv
    absl_logging.set_verbosity(absl_logging.FATAL)  # Because orbax and jax log every detail.
    with exit_status.set_on_error():
        workdir = pathlib.Path(str(WORKDIR.value))
        if MODE.value == "verify":
            sys.exit(0 if modes.verify(workdir) else 2)
        start()
        with processes.outlet(workdir) as folder:
            finished = run(folder)
        if not finished:
            sys.exit(command_line.STOPPED_STATUS.value)


def start() -> None:
    """Sets up jax, the other processes and the log."""
    backend.start_fast()
    if command_line.DETERMINISTIC.value:
        backend.compute_deterministically()
    processes.start(
        command_line.COORDINATOR.value,
        command_line.NUM_PROCESSES.value,
        command_line.PROCESS_ID.value,
        command_line.CLUSTER.value,
    )
    backend.check_devices()
    terminal.start(jax.process_index(), quiet=command_line.QUIET.value)


def run(workdir: pathlib.Path) -> bool:
    """Trains or evaluates, as the flags say; returns False if a signal stopped the training."""
    config, mode = CONFIG.value, MODE.value
    command = shlex.join(["python", "-m", "cat_jax.main", *sys.argv[1:]])
    if command_line.SWEEP.value or command_line.SEEDS.value:
        axes = command_line.SWEEP.value, command_line.SEEDS.value
        return modes.run_sweep(config, workdir, mode, *axes, command)
    if mode == "train":
        return modes.train(config, workdir, command)
    if WEIGHTS.value:
        states_normalisation = command_line.states_normalisation()
        modes.evaluate_file(
            config, workdir, WEIGHTS.value, command, states_normalisation=states_normalisation
        )
    else:
        modes.evaluate(config, workdir, command)
    return True


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
