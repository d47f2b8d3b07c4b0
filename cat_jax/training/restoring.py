"""The state that a run begins with: that of its newest checkpoint, or a new one."""

import logging

import jax

from cat_jax.experiment.experiment import Experiment
from cat_jax.step.state import TrainState
from cat_jax.storage import checkpoint
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.storage.run_folder import RunFolder
from cat_jax.training import initial

logger = logging.getLogger(__name__)


def begin(experiment: Experiment, folder: RunFolder, num_devices: int) -> tuple[TrainState, int]:
    """Returns the state, and the number of steps that are done.

    Args:
      experiment: experiment of the run.
      folder: folder with its checkpoints.
      num_devices: number of devices of all processes.

    Raises:
      Damaged: if no checkpoint of last/, or of best/, is intact.
    """
    # All best ones, to report damage now, and not at a validation.
    all_best = [*map(checkpoint.newest, sorted(folder.checkpoints.glob("best*")))]
    newest = checkpoint.newest(folder.checkpoint("last"))
    if newest is None:
        for best in filter(None, all_best):
            logger.warning(
                "Training starts at step 0, but %s has a checkpoint of step %d, which stays until "
                "a validation has a higher score; to train without it, delete that folder.",
                *(best.path.parent, best.step),
            )
        state, config = experiment.begin(), experiment.config
        if config.init_from:
            source = config.init_from, config.init_weights
            state = initial.begin(state, experiment.classifier, *source)
        return state, 0
    state = checkpoint.restore(newest, jax.eval_shape(experiment.init))
    if newest.step < experiment.num_steps:
        logger.info("Resuming from the checkpoint of step %d.", newest.step)
        _warn_of_devices(newest, num_devices, syncs=experiment.config.sync_batch_norm)
    return state, newest.step


def _warn_of_devices(resumed: Checkpoint, num_devices: int, *, syncs: bool) -> None:
    before = resumed.meta.get("num_devices")
    if before not in (None, num_devices) and not syncs:
        logger.warning(
            "Each device computes its own batch statistics (config.sync_batch_norm=False): on "
            "%d devices, instead of %d, the run computes other statistics.",
            *(num_devices, before),
        )
