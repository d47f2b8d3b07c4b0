"""Exports trained networks with a model card, or adversarial images.

    python -m cat_jax.weights.export --workdir=runs/digits --format=safetensors
    python -m cat_jax.weights.export --workdir=runs/digits --format=torch \\
        --adversarial=standard

The first command writes the classifier, the mask network and a model card to
runs/digits/export/. `cat_jax.weights.load(FILE)` loads the classifier, and
`python -m cat_jax.main --mode=evaluate --weights=FILE` evaluates it. The format
torch is that of the authors of CAT ("state_dict", "state_dict_mask").

The second command writes the adversarial images of an evaluation that kept them
(--config.test.save_adversarial=float32), as AutoAttack and RobustBench read
them: "adv_complete" and "x_test", float32 [N, C, H, W] in [0, 1], and "y_test".
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cat_jax import data, weights
from cat_jax.errors import Damaged, UsageError
from cat_jax.experiment import labels
from cat_jax.experiment.limits import read_radius
from cat_jax.networks.record import named
from cat_jax.runtime import backend
from cat_jax.storage import files, lines, paths, run_folder
from cat_jax.weights import model_card, pytorch_names, trained, weight_files
from cat_jax.weights.loading import Loaded
from cat_jax.weights.trained import CHECKPOINTS, Trained
from cat_jax.weights.weight_files import CLASSIFIER, MASK_NET, Part

LABELS = ("dataset", "variant", "conventions", "seed")  # By which results name what was trained.


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if it is done, 2 if the user has to act."""
    parser = argparse.ArgumentParser(
        prog="python -m cat_jax.weights.export",
        usage="python -m cat_jax.weights.export --workdir=RUN --format=FORMAT [flags]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="folder of the run")
    formats = " or ".join(weight_files.SUFFIXES)
    parser.add_argument(
        "--format", required=True, choices=weight_files.SUFFIXES, metavar="FORMAT", help=formats
    )
    parser.add_argument(
        "--checkpoint",
        default="best",
        choices=CHECKPOINTS,
        metavar="NAME",
        help=f"{', '.join(CHECKPOINTS)}; default: best",
    )
    parser.add_argument("--adversarial", metavar="ATTACK", help="export images of this attack")
    parser.add_argument("--epsilon", help="with --adversarial: radius, if there are several")
    parser.add_argument(
        "--data_dir", metavar="FOLDER", help="with --adversarial: folder of the data, if moved"
    )
    parser.add_argument("--out", metavar="FILE", help="file to write")
    options = parser.parse_args(arguments)
    try:
        workdir = paths.workdir_path(options.workdir)
        tail = f"_{options.adversarial}" if options.adversarial else ""
        stem = workdir / "export" / f"{workdir.resolve().name}_{options.checkpoint}{tail}"
        if options.out:
            out = paths.local_path(options.out, "--out")
            files.check_writable_file(out, "--out")
            stem = out.with_name(out.name.removesuffix(weight_files.SUFFIXES[options.format]))
        backend.check_devices()
        run = trained.load(workdir, options.checkpoint)
        if options.adversarial:
            norm = run.config.test.norm
            epsilon = options.epsilon and read_radius("test.epsilon", options.epsilon, norm)
            where = (options.adversarial, options.data_dir, epsilon)
            found = adversarial(run, workdir, *where)
            written = _write_images(found, stem, options.format)
        else:
            written = export(run, workdir, options.format, stem)
    except (UsageError, Damaged, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)))
    return 0


def export(
    run: Trained, workdir: pathlib.Path, form: str, stem: pathlib.Path
) -> list[pathlib.Path]:
    """Writes the networks of a run and their card.

    Args:
      run: what `trained.load` found in `workdir`.
      workdir: of the run; its results go into the card.
      form: a key of `weight_files.SUFFIXES`.
      stem: the path of the file, without its suffix.

    Returns:
      what was written, the card last.
    """
    parts = {CLASSIFIER: _part(run, CLASSIFIER, run.classifier)}
    if run.mask_net:
        parts[MASK_NET] = _part(run, MASK_NET, run.mask_net)
    written = weight_files.write(stem, form, parts)
    results, checks = (run_folder.read_lines(workdir, name) for name in ("results", "checks"))
    sums = {path: weight_files.digest(path) for path in written}
    file = written[0].with_name(f"{written[0].name}.md")
    files.write_text(file, model_card.card(run, form, sums, results, checks))
    return [*written, file]


def _part(run: Trained, section: str, loaded: Loaded) -> Part:
    """A network of the run, with what `weights.load` needs to build it again."""
    network, record = loaded.network, named(run.config[section].name)
    about: dict[str, Any] = {"network": record.name, "arguments": record.arguments_of(network)}
    about |= {
        "plugins": list(run.config.plugins),
        "checkpoint": run.checkpoint,
        "step": run.step,
        "image_shape": run.image_shape,
    }
    about["config"] = {field: run.config[field] for field in LABELS}
    about |= {constant: list(getattr(network, constant, ())) for constant in ("mean", "std")}
    return Part(pytorch_names.to_state_dict(network, loaded.variables), about)


def adversarial(
    run: Trained,
    workdir: pathlib.Path,
    attack: str,
    data_dir: str | None = None,
    epsilon: float | None = None,
) -> dict[str, np.ndarray]:
    """The images that an attack has left, and what they were made of.

    Args:
      run: the checkpoint that was attacked.
      workdir: folder of the run.
      attack: name of the attack; of "pgd20" the images of 8 bits too, "pgd20_uint8".
      data_dir: folder of the data, if it is not the one of the config.
      epsilon: radius of the attack; needed if it was run at several.

    Returns:
      "adv_complete" and "x_test", float32 [N, C, H, W] in [0, 1]; "y_test", int64 [N]; "indices",
      int64 [N], in the test split; "right", bool [N], whether our classifier still was.

    Raises:
      UsageError: if the images were not kept, if it is not clear which are meant, or if the data
        are not those of the run.
    """
    stem = _stem(run, workdir, attack, epsilon)
    dataset = data.load(run.config.dataset, data_dir or run.config.data_dir)
    run_folder.refuse_other_data(workdir, dataset.fingerprint)
    with np.load(workdir / "evaluation" / f"{stem}.npz") as record:
        classes, indices, flags = (record[name] for name in ("labels", "indices", "flags"))
    return {
        "adv_complete": _nchw(np.load(workdir / "adversarial" / f"{stem}.npy")),
        "x_test": _nchw(dataset.test.images[indices]),
        "y_test": classes.astype(np.int64),
        "indices": indices.astype(np.int64),
        "right": flags == 1,
    }


def _stem(run: Trained, workdir: pathlib.Path, attack: str, epsilon: float | None) -> str:
    """The name of the record, without its suffix, whose images are meant: of the most images."""
    own = weights.fingerprint(run.classifier.variables)
    kept = [
        line
        for line in lines.with_conditions(run_folder.read_lines(workdir, "results"))
        if line["attacked"]["weights"] == own
        and line["conditions"]["attack"] in (attack, f"{attack}_uint8")
        and (workdir / "adversarial" / f"{lines.record_stem(line)}.npy").exists()
        and epsilon in (None, line["conditions"].get("epsilon"))
    ]
    kept = [line for line in kept if line["conditions"]["attack"] == attack] or kept
    at = "" if epsilon is None else f" at {labels.radius(epsilon)}"
    if not kept:
        raise UsageError(
            f"{workdir} holds no adversarial images of {run.checkpoint} under {attack}{at}; "
            "evaluate with --config.test.save_adversarial=float32 first."
        )
    names = labels.attacks([line["conditions"] for line in kept])
    if len(found := dict.fromkeys(names)) > 1:
        raise UsageError(
            f"{workdir} holds adversarial images of {', '.join(found)}; name the attack as "
            "results.jsonl does, and its radius: --epsilon=8/255."
        )
    return lines.record_stem(max(kept, key=lambda line: line["conditions"]["num_examples"]))


def _nchw(images: np.ndarray) -> np.ndarray:
    """Uint8 or float32 [N, H, W, C] -> float32 [N, C, H, W] in [0, 1]."""
    unit = images / np.float32(255) if images.dtype == np.uint8 else images
    return np.ascontiguousarray(unit.transpose(0, 3, 1, 2))


def _write_images(
    arrays: dict[str, np.ndarray], stem: pathlib.Path, form: str
) -> list[pathlib.Path]:
    path = stem.with_name(stem.name + weight_files.SUFFIXES[form])
    if form == "torch":
        weight_files.save_torch(path, arrays)
    else:
        weight_files.save_safetensors(path, arrays, {})
    return [path]


if __name__ == "__main__":
    sys.exit(main())
