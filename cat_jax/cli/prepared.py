"""A run as a command works on it: its data and objects, the lock on its folder, what it prints."""

import contextlib
import logging
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import Damaged, UsageError
from cat_jax.evaluation import robustness
from cat_jax.evaluation.transfer import Source, load_source
from cat_jax.experiment import run_config, settings
from cat_jax.experiment.experiment import Experiment, build_experiment
from cat_jax.paper import references
from cat_jax.report import corruption_table, details, grids, tables, transfer_matrix
from cat_jax.runtime import processes, registry, terminal, watchdog
from cat_jax.storage import disk_errors, run_folder
from cat_jax.storage.run_folder import RunFolder
from cat_jax.training import initial

logger = logging.getLogger(__name__)


class PreparedRun(NamedTuple):
    """An experiment, its data, and the folder of its files.

    Attributes:
      experiment: objects that the resolved config stands for.
      dataset: images and labels.
      folder: folder of the run.
      unresolved: the config before it was resolved.
      needs_checkpoint: whether the command works on the run's own checkpoints alone.
    """

    experiment: Experiment
    dataset: data.Dataset
    folder: RunFolder
    unresolved: ConfigDict
    needs_checkpoint: bool

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While the block runs, keeps others out of the folder, and ends a stuck process."""
        several = jax.process_count() > 1
        least = 60 * self.experiment.config.watchdog_minutes
        with (
            watchdog.watching(least, jax.process_index() if several else None),
            contextlib.ExitStack() as stack,
            disk_errors.explained(self.folder),
        ):
            try:
                processes.from_first(lambda: self._claim(stack))
                yield
            except Damaged as error:
                raise UsageError(str(error)) from error

    def _claim(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(self.folder.claimed())
        stack.enter_context(terminal.also_in(self.folder.log_file))
        # Again, because until now another process could write in the folder.
        _settle(self.unresolved, self.folder, self.needs_checkpoint)
        self.folder.refuse_other_data(self.dataset.fingerprint)
        for name in run_folder.LINES:  # To refuse damaged lines before the training.
            self.folder.read_lines(name)

    def write_config(self) -> None:
        """Writes config.json."""
        resolved = self.experiment.config
        fields = settings.as_dict(resolved), settings.given_values(self.unresolved, resolved)
        self.folder.write_config(*fields, self.dataset.fingerprint)

    def source(self, names: Sequence[str]) -> Source | None:
        """The runs or files on which attacks look for images too; None without names."""
        parts = (self.experiment, self.dataset, self.folder)
        return load_source(names, *parts) if names else None

    def attack_checkpoints(self, source: Source | None = None) -> str:
        """Attacks the checkpoints; returns a sentence on the mask, or ""."""
        parts = (self.experiment, self.dataset, self.folder)
        return robustness.evaluate(*parts, jax.devices(), source)

    def finish(self, command: str, mask_text: str = "") -> None:
        """Writes the page and prints the mask, the checks and, last, the results.

        Args:
          command: command line, for the page, or "".
          mask_text: a sentence on the mask, or "".
        """
        self.write_page(command)
        if not self.experiment.attacks:
            return
        workdir = self.folder.path
        texts = [mask_text, details.checks_summary(workdir, sys.stdout)]
        texts.append(grids.captioned(transfer_matrix.transfer_grids([workdir])))
        texts.append(grids.captioned(corruption_table.corruption_grids([workdir])))
        texts.append(tables.runs_table([workdir], references.of_run))
        print("\n\n".join(filter(None, texts)))

    def write_page(self, command: str) -> None:
        """Writes report.html; `command` is the command line, or ""."""
        if command:
            self.folder.note_command(command)
        # Here, because it imports matplotlib, which takes a second.
        from cat_jax.report import page

        logger.info("Report: %s", page.write_page(self.folder.path, references.of_run))


def prepare(
    config: ConfigDict | None, workdir: pathlib.Path, *, needs_checkpoint: bool = False
) -> PreparedRun:
    """Loads the data and builds the experiment; writes nothing.

    Args:
      config: None for the config that the workdir was created with.
      workdir: folder of the run.
      needs_checkpoint: whether to refuse a workdir without a checkpoint.

    Raises:
      UsageError: if the user has to change something; one line says what.
    """
    folder = RunFolder(workdir)
    config = processes.from_first(lambda: _with_identities(config, folder))
    unresolved = processes.from_first(lambda: _settle(config, folder, needs_checkpoint))
    resolved = settings.resolve(unresolved)
    registry.import_plugins(resolved.plugins)
    dataset = data.load(resolved.dataset, resolved.data_dir)
    processes.refuse_different(f"the data set {resolved.dataset}", dataset.fingerprint)
    experiment = build_experiment(resolved, dataset.spec, jax.devices())
    robustness.check_size(experiment, dataset)
    return PreparedRun(experiment, dataset, folder, unresolved, needs_checkpoint)


def _with_identities(config: ConfigDict | None, folder: RunFolder) -> ConfigDict | None:
    """The config with the fingerprints of the weights and images that training takes from files.

    A run that exists keeps its own, so that it resumes without the weights, and is evaluated
    without the images.
    """
    if config is None:
        return config
    config, existing = config.copy_and_resolve_references(), folder.config() or {}
    if config.init_from:
        if existing.get("init_from") == config.init_from:
            config.init_weights = existing["init_weights"]
        else:
            config.init_weights = initial.identity(config.init_from)
    if path := config.extra_data.path:
        known = existing.get("extra_data", {})
        is_known = known.get("path") == path
        digits = known["fingerprint"] if is_known else data.extra_images.identity(path)
        config.extra_data.fingerprint = digits
    return config


def _settle(config: ConfigDict | None, folder: RunFolder, needs_checkpoint: bool) -> ConfigDict:
    """Returns the config, by default the one that the folder was created with.

    Raises:
      UsageError: without any config, with a config that the folder was not created with, or
        without a checkpoint that is needed.
    """
    if folder.config() is not None:
        existing = run_config.read(folder)
        config = config or existing
        run_config.refuse_other(folder, settings.resolve(existing), settings.resolve(config))
    if config is None:
        raise UsageError(f"{folder} holds no config.json; name one: --config=cat_jax:digits.")
    if needs_checkpoint and not folder.checkpoints.is_dir():
        raise UsageError(f"{folder} holds no checkpoint; train first: --mode=train.")
    return config
