"""Compiles a run for devices that are not there, and prints what it needs.

    python -m cat_jax.plan --config=cat_jax:preact_cifar10:cat_cw --target=h100
    python -m cat_jax.plan --config=cat_jax:wrn_cifar10 --target=tpu-v5e:8 --fit

It compiles the training step and the largest attack of the evaluation, and
prints peak memory, operations, traffic, messages among devices, kernels, the
precision of convolutions, and the least time that a step can take. The second
command also looks for the largest batch, and the fewest parts, that fit.
It exits with status 2 if the run does not fit.

It reads the data set only if it is not a published one, such as cifar10. It
needs the extra plan: pip install "cat_jax[plan]".
"""

import functools
import sys
from collections.abc import Sequence

import jax
from absl import app, flags
from absl import logging as absl_logging

from cat_jax import data
from cat_jax.cli import command_line
from cat_jax.cli.command_line import CONFIG
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.plan import absent_devices, plan_text, step_plan, target

TARGET = flags.DEFINE_string("target", None, "Devices, such as h100, h100:8, tpu-v5e:8, cpu.")
FIT = flags.DEFINE_bool("fit", False, "Also look for the largest batch and fewest parts that fit.")


def main(argv: Sequence[str]) -> None:
    """Prints the plan of the flags."""
    del argv
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        fits = run()
    except UsageError as error:
        command_line.fail(str(error))
    if not fits:
        sys.exit(2)


def run() -> bool:
    """Plans the run that the flags name; returns whether it fits.

    Raises:
      UsageError: if the user has to change something.
    """
    config = CONFIG.value
    if config is None or not TARGET.value:
        raise UsageError("--config or --target is missing; name both: --target=h100:8.")
    planned = target.read(TARGET.value)
    absent_devices.prepare_environment()
    jax.config.update("jax_platforms", "cpu")
    devices = absent_devices.devices(planned)
    resolved = settings.resolve(config)
    spec = data.spec(resolved.dataset, resolved.data_dir)
    experiment = step_plan.experiment_for(config, spec, devices)
    print(plan_text.heading(experiment, planned))
    fits = True
    of_evaluation = functools.partial(step_plan.of_evaluation, devices=devices)
    for make in (step_plan.of_step, of_evaluation):
        plan = make(experiment, spec, planned)
        if plan is not None:
            fits &= plan.fits
            print(plan_text.describe(plan, experiment.num_steps), flush=True)
    if FIT.value:
        for line in plan_text.fit(config, spec, planned, devices):
            print(line, flush=True)
    return fits


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the command line; a mistake in it ends the process with one line."""
    if {"-h", "--help"} & set(argv):
        print((__doc__ or "").rstrip())
        sys.exit(0)
    return command_line.read(flags.FLAGS, argv)


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
