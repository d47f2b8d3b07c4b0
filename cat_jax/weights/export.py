"""Exports trained networks with a model card, or adversarial images.

    python -m cat_jax.weights.export --workdir=runs/digits --format=safetensors
    python -m cat_jax.weights.export --workdir=runs/digits --format=torch \\
        --adversarial=standard
    python -m cat_jax.weights.export --workdir=runs/digits --format=robustbench

The first command writes the classifier, the mask network and a model card to
runs/digits/export/. `cat_jax.weights.load(FILE)` loads the classifier, and
`python -m cat_jax.main --mode=evaluate --weights=FILE` evaluates it. The format
torch is that of the authors of CAT ("state_dict", "state_dict_mask").

The second command writes the adversarial images of an evaluation that kept them
(--config.test.save_adversarial=float32), as AutoAttack and RobustBench read
them: "adv_complete" and "x_test", float32 [N, C, H, W] in [0, 1], and "y_test".

The third command writes a submission to RobustBench: the PyTorch weights with
mu and sigma, their class, the model info, the text of the issue, and the log.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cat_jax.errors import Damaged, UsageError
from cat_jax.experiment.limits import read_radius
from cat_jax.networks.record import named
from cat_jax.runtime import backend
from cat_jax.storage import files, paths, run_folder
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights import (
    adversarial_images,
    model_card,
    pytorch_names,
    submission,
    trained,
    weight_files,
)
from cat_jax.weights.loading import Loaded
from cat_jax.weights.trained import CHECKPOINTS, Trained
from cat_jax.weights.weight_files import CLASSIFIER, MASK_NET, Part

LABELS = ("dataset", "variant", "conventions", "seed")  # Fields that identify a run in results.


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns 2 for an error that the user can fix."""
    options = _parser().parse_args(arguments)
    try:
        written = _run(options)
    except (UsageError, Damaged, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cat_jax.weights.export",
        usage="python -m cat_jax.weights.export --workdir=RUN --format=FORMAT [flags]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--workdir", required=True, metavar="RUN", help="folder of the run")
    formats = [*weight_files.SUFFIXES, submission.FORM]
    text = f"{', '.join(formats[:-1])} or {formats[-1]}"
    parser.add_argument("--format", required=True, choices=formats, metavar="FORMAT", help=text)
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
    return parser


def _run(options: argparse.Namespace) -> list[pathlib.Path]:
    folder = run_folder.named(options.workdir)
    if options.adversarial and options.format == submission.FORM:
        raise UsageError("--adversarial needs --format=safetensors or torch.")
    for name in ("epsilon", "data_dir"):
        if getattr(options, name) is not None and not options.adversarial:
            raise UsageError(f"--{name} needs --adversarial=ATTACK; add that, or leave it out.")
    stem = _stem(options, folder)
    backend.check_devices()
    run = trained.load(folder.path, options.checkpoint)
    if options.format == submission.FORM:
        return submission.write(run, folder.path, stem)
    if not options.adversarial:
        return export(run, folder.path, options.format, stem)
    norm = run.config.test.norm
    epsilon = options.epsilon and read_radius("--epsilon", options.epsilon, norm)
    images = adversarial_images.load(
        run, folder.path, options.adversarial, options.data_dir, epsilon
    )
    return _write_images(images, stem, options.format)


def _stem(options: argparse.Namespace, folder: RunFolder) -> pathlib.Path:
    """The path of the file to write, without its suffix."""
    if options.out:
        out = paths.local_path(options.out, "--out")
        files.check_writable_file(out, "--out")
        suffix = weight_files.SUFFIXES.get(options.format, ".pt")
        stem = out.name.removesuffix(suffix)
        if stem == out.name and out.name.endswith(weight_files.ALL_SUFFIXES):
            raise UsageError(f"--out is {out}; files of --format={options.format} end in {suffix}.")
        return out.with_name(stem)
    tail = f"_{options.adversarial}" if options.adversarial else ""
    return folder.export_file(f"{folder.path.resolve().name}_{options.checkpoint}{tail}")


def export(
    run: Trained, workdir: pathlib.Path, form: str, stem: pathlib.Path
) -> list[pathlib.Path]:
    """Writes the networks of a run and their model card.

    Args:
      run: networks of the run, as `trained.load` returns them.
      workdir: folder of the run, whose results go into the card.
      form: a key of `weight_files.SUFFIXES`.
      stem: path of the file, without its suffix.

    Returns:
      The written files, the card last.
    """
    results, checks = (RunFolder(workdir).read_lines(name) for name in ("results", "checks"))
    parts = {CLASSIFIER: _part(run, CLASSIFIER, run.classifier)}
    parts[CLASSIFIER].about["results"] = model_card.accuracies(run, results)
    if run.mask_net:
        parts[MASK_NET] = _part(run, MASK_NET, run.mask_net)
    written = weight_files.write(stem, form, parts)
    sums = {path: weight_files.digest(path) for path in written}
    file = written[0].with_name(f"{written[0].name}.md")
    files.write_text(file, model_card.card(run, form, sums, results, checks))
    return [*written, file]


def _part(run: Trained, section: str, loaded: Loaded) -> Part:
    """A network of the run, with the description from which `weights.load` builds it again."""
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
