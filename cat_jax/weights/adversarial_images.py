"""The adversarial images that an evaluation has kept, in the form of AutoAttack."""

import pathlib

import numpy as np

from cat_jax import data, weights
from cat_jax.errors import UsageError
from cat_jax.experiment import labels
from cat_jax.storage import lines
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights.trained import Trained


def load(
    run: Trained,
    workdir: pathlib.Path,
    attack: str,
    data_dir: str | None = None,
    epsilon: float | None = None,
) -> dict[str, np.ndarray]:
    """The adversarial images of an attack on a run, and their natural images.

    Args:
      run: the attacked checkpoint.
      workdir: folder of the run.
      attack: name of the attack; "pgd20" also stands for its 8-bit images, "pgd20_uint8".
      data_dir: folder of the data, if it is not the one in the config.
      epsilon: radius of the attack; required if there are results at several radii.

    Returns:
      "adv_complete" and "x_test", float32 [N, C, H, W] in [0, 1]; "y_test", int64 [N]; "indices",
      int64 [N], in the test split; "right", bool [N], whether our classifier is still correct.

    Raises:
      UsageError: if the evaluation has not kept the images, if several sets of images have this
        name, or if the data are not those of the run.
    """
    folder = RunFolder(workdir)
    stem = _stem(run, folder, attack, epsilon)
    dataset = data.load(run.config.dataset, data_dir or run.config.data_dir)
    folder.refuse_other_data(dataset.fingerprint)
    with np.load(folder.record_file(stem)) as record:
        classes, indices, flags = (record[name] for name in ("labels", "indices", "flags"))
    return {
        "adv_complete": _nchw(np.load(folder.images_file(stem))),
        "x_test": _nchw(dataset.test.images[indices]),
        "y_test": classes.astype(np.int64),
        "indices": indices.astype(np.int64),
        "right": flags == 1,
    }


def _stem(run: Trained, folder: RunFolder, attack: str, epsilon: float | None) -> str:
    """The name of the record, without its suffix, with the most images."""
    fingerprint = weights.fingerprint(run.classifier.variables)
    results = [
        line
        for line in folder.read_lines("results")
        if line["attacked"]["weights"] == fingerprint
        and line["conditions"]["attack"] in (attack, f"{attack}_uint8")
        and folder.images_file(lines.record_stem(line)).exists()
        and epsilon in (None, line["conditions"].get("epsilon"))
    ]
    results = [line for line in results if line["conditions"]["attack"] == attack] or results
    at = "" if epsilon is None else f" at {labels.radius(epsilon)}"
    if not results:
        raise UsageError(
            f"{folder} holds no adversarial images of {run.checkpoint} under {attack}{at}; "
            "evaluate with --config.test.save_adversarial=float32 first."
        )
    names = dict.fromkeys(labels.attacks([line["conditions"] for line in results]))
    if len(names) > 1:
        raise UsageError(
            f"{folder} holds adversarial images of {', '.join(names)}; name the attack as in "
            "results.jsonl, and its radius: --epsilon=8/255."
        )
    return lines.record_stem(max(results, key=lambda line: line["conditions"]["num_examples"]))


def _nchw(images: np.ndarray) -> np.ndarray:
    """Uint8 or float32 [N, H, W, C] -> float32 [N, C, H, W] in [0, 1]."""
    unit = images / np.float32(255) if images.dtype == np.uint8 else images
    return np.ascontiguousarray(unit.transpose(0, 3, 1, 2))
