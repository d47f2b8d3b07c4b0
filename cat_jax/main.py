"""Trains and evaluates one experiment.

    python -m cat_jax.main --config=cat_jax:digits --workdir=runs/digits
    python -m cat_jax.main --mode=evaluate --workdir=runs/digits \\
        --config.evaluation=standard
    python -m cat_jax.main --mode=evaluate --workdir=runs/theirs \\
        --config=cat_jax:preact_cifar10 --weights=FILE
    python -m cat_jax.main --config=cat_jax:digits --workdir=runs/sweep \\
        --sweep=beta1=0.1,0.3 --seeds=0,1,2

The first command trains, or resumes the run in the workdir, and then attacks
its checkpoints. The second runs AutoAttack on them. The third attacks the
network in a file. The last one trains a run for each value and each seed.

--config.FIELD=VALUE overrides a field, such as --config.method.beta1=0.1;
cat_jax/configs/default.py describes all fields. Ctrl-C saves the run; the same
command resumes it.
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
from cat_jax.runtime import backend, cluster, processes, terminal

flags.adopt_module_key_flags(command_line)  # For --help.


def main(argv: Sequence[str]) -> None:
    """Runs the mode that the flags name, and exits with its status."""
    del argv
    absl_logging.set_verbosity(absl_logging.FATAL)  # Because orbax and jax log every detail.
    with exit_status.set_on_error():
        workdir = pathlib.Path(str(WORKDIR.value))
        if MODE.value == "verify":
            sys.exit(0 if modes.verify(workdir) else 2)
        if command_line.PRINT_COMMANDS.value:
            axes = command_line.SWEEP.value, command_line.SEEDS.value
            print("\n".join(modes.sweep_commands(CONFIG.value, workdir, *axes, sys.argv[1:])))
            return
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
    cluster.start(
        command_line.COORDINATOR.value,
        command_line.NUM_PROCESSES.value,
        command_line.PROCESS_ID.value,
        command_line.CLUSTER.value,
    )
    backend.check_devices()
    terminal.start(jax.process_index(), quiet=command_line.QUIET.value)


def run(workdir: pathlib.Path) -> bool:
    """Trains or evaluates as the flags say; returns False if a signal stopped the training."""
    config, mode = CONFIG.value, MODE.value
    command = shlex.join(["python", "-m", "cat_jax.main", *sys.argv[1:]])
    if command_line.SWEEP.value or command_line.SEEDS.value:
        axes = command_line.SWEEP.value, command_line.SEEDS.value
        return modes.run_sweep(config, workdir, mode, *axes, command)
    if mode == "train":
        return modes.train(config, workdir, command, profile=command_line.PROFILE.value)
    transfer_from = command_line.TRANSFER_FROM.value
    if WEIGHTS.value:
        modes.evaluate_file(
            config,
            workdir,
            WEIGHTS.value,
            command,
            stated_fields=command_line.stated_fields(),
            transfer_from=transfer_from,
        )
    else:
        modes.evaluate(config, workdir, command, transfer_from=transfer_from)
    return True


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
