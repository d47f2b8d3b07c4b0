"""Transfer: attacks a classifier with the images that attacks found on other classifiers."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax import data, weights
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import UsageError
from cat_jax.evaluation.attack_progress import AttackProgress
from cat_jax.evaluation.attacked_batch import ApplyFn
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.other_images import on_other_images
from cat_jax.evaluation.results import Place, Result
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes
from cat_jax.storage.paths import local_path
from cat_jax.storage.run_folder import RunFolder
from cat_jax.types import Array, PyTree
from cat_jax.weights import Loaded, describe_short, trained


class Source(NamedTuple):
    """The classifiers on which the images of a transfer attack are found.

    Attributes:
      apply: (variables of each, images) -> mean of their logits.
      variables: parameters and running statistics of each.
      described: name, checkpoint, step, network and weights of each, for lines of results.
    """

    apply: ApplyFn
    variables: tuple[PyTree, ...]
    described: list[dict[str, Any]]


def load_source(
    names: Sequence[str], experiment: Experiment, dataset: data.Dataset, folder: RunFolder
) -> Source:
    """The best checkpoints of runs, or networks in files of weights.

    Args:
      names: folders of runs, or files as `weights.load` takes them.
      experiment: experiment whose classifier will be attacked.
      dataset: its data, which the sources must accept.
      folder: its folder.

    Raises:
      UsageError: if there is no such run or file, it is the attacked run, or was trained on other
        data.
    """
    parts = [
        processes.from_first(functools.partial(_load, name, experiment, dataset, folder))
        for name in names
    ]
    networks: list[ApplyFn] = [loaded.network.apply for loaded, _ in parts]

    def apply(variables: tuple[PyTree, ...], images: Array) -> Array:
        pairs = zip(networks, variables, strict=True)
        return jnp.mean(jnp.stack([network(v, images) for network, v in pairs]), axis=0)

    variables = tuple(loaded.variables for loaded, _ in parts)
    return Source(apply, variables, [described for _, described in parts])


def _load(
    name: str, experiment: Experiment, dataset: data.Dataset, folder: RunFolder
) -> tuple[Loaded, dict[str, Any]]:
    """A classifier and its description."""
    path, spec = local_path(name, "--transfer_from"), dataset.spec
    described: dict[str, Any] = {"run": path.resolve().name, "checkpoint": None, "step": None}
    if path.is_file():
        loaded = weights.load(path, image_shape=spec.image_shape)
    else:
        if path.resolve() == folder.path.resolve():
            raise UsageError(f"--transfer_from names {path}, the attacked run; name another run.")
        run = trained.load(path)
        loaded = run.classifier
        described |= {"checkpoint": run.checkpoint, "step": run.step}
        own, other = experiment.config.dataset, run.config.dataset
        if own != other or run.image_shape != spec.image_shape:
            raise UsageError(f"{path} was trained on {other}; expected {own}, as the attacked run.")
    num_classes = getattr(loaded.network, "num_classes", spec.num_classes)
    if num_classes != spec.num_classes:
        raise UsageError(f"{path} has {num_classes} classes; expected {spec.num_classes}.")
    described["classifier"] = describe_short(loaded.network)
    described["weights"] = weights.fingerprint(loaded.variables)[:12]
    return loaded, described


class Transfer:
    """The images that attacks find on a source, kept in memory for all attacked weights."""

    def __init__(
        self, source: Source, seed: int, batch_size: int, devices: Sequence[jax.Device]
    ) -> None:
        """Attacks nothing yet; arguments are as for `Evaluator`, with its seed."""
        self.source = source
        self._evaluator = Evaluator(source.apply, jax.random.key(seed), batch_size, devices)
        self._progress = AttackProgress()
        self._results: dict[str, Result] = {}

    def conditions(self, named: NamedAttack) -> dict[str, Any]:
        """The conditions of an attack on the source, with the source, as results state them."""
        own = _on_all_images(named).conditions
        return own | {"attack": f"{named.name}_transfer", "source": self.source.described}

    def __call__(
        self,
        evaluator: Evaluator,
        variables: PyTree,
        named: NamedAttack,
        split: data.Split,
        indices: np.ndarray,
        place: Place,
    ) -> Result:
        """Attacks a classifier with the images that an attack finds on the source.

        Args:
          evaluator, variables: the attacked classifier.
          named: the attack.
          split, indices: images and labels, as for `Evaluator`.
          place: files of the result, whose key has these conditions. If they hold the complete
            result, the source is not attacked.
        """
        make_images = functools.partial(self.images, named, split, indices)
        arguments = (self.conditions(named), split, indices, place, make_images)
        return on_other_images(evaluator, variables, *arguments)

    def images(self, named: NamedAttack, split: data.Split, indices: np.ndarray) -> np.ndarray:
        """The images that an attack finds on the source, float32 [N, H, W, C].

        The attack runs on all images, also on those that the source classifies wrongly. An attack
        of a cascade only runs on images that withstand the attacks before it, on the source.
        """
        for attack in _on_all_images(named).chain():
            if attack.name not in self._results:
                self._results[attack.name] = self._attack(attack, split, indices)
        adversarial = self._results[named.name].adversarial
        assert adversarial is not None
        return adversarial

    def _attack(self, attack: NamedAttack, split: data.Split, indices: np.ndarray) -> Result:
        before = self._results[attack.after.name] if attack.after else None
        total = len(split.labels)
        num_attacked = total if before is None else int(before.flags.sum())
        names = " + ".join(described["run"] for described in self.source.described)
        text = f"{names} {attack.name}"
        with self._progress.bar(text, attack.conditions, total, num_attacked) as on_batch:
            return self._evaluator(
                self.source.variables,
                attack,
                split,
                indices=indices,
                before=before,
                keep="float32",
                on_batch=on_batch,
            )


def _on_all_images(named: NamedAttack) -> NamedAttack:
    """The attack without natural accuracy before it or before its cascade."""
    if named.after is None or named.after.attack is None:
        return named._replace(after=None)
    return named._replace(after=_on_all_images(named.after))
