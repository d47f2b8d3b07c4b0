"""Accuracy of any classifier on arrays, under a suite of attacks, in one call."""

import hashlib
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from cat_jax import weights
from cat_jax.attacks.arguments import as_key, check_batch, check_labels, check_radius
from cat_jax.attacks.callables import as_logits_fn
from cat_jax.attacks.named import NamedAttack
from cat_jax.configs import default
from cat_jax.data import Split
from cat_jax.errors import UsageError
from cat_jax.evaluation.attack_progress import AttackProgress
from cat_jax.evaluation.attacked_batch import ApplyFn
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.results import Place, Result, before
from cat_jax.experiment.attack_words import words
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.experiment.listed_attack import STANDARD_QUERIES
from cat_jax.types import Array, LogitsFn


def evaluate(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    suite: str | Sequence[NamedAttack] = "standard",
    epsilon: float,
    norm: str = "linf",
    num_queries: int = STANDARD_QUERIES,
    batch_size: int = 250,
    workdir: str | pathlib.Path | None = None,
    keep_images: bool = False,
    progress: bool = True,
) -> dict[str, Result]:
    """Attacks every image, and returns what each attack left.

        results = evaluate(model, images, labels, jax.random.key(0), epsilon=8 / 255)
        print(results["standard"].accuracy, results["standard"].interval)

    The results depend neither on the batch size nor on the number of devices, all of which are
    used. An attack of a cascade, such as those of "standard", attacks only what withstood the ones
    before it.

    Args:
      logits_fn: the classifier, as for `attacks.pgd`.
      images: floats in [0, 1], [N, H, W, C].
      labels: integers, [N].
      key: of all noise. That of an image derives from it, the attack's name and the image's index.
      suite: suites and attacks, as `--config.evaluation` takes them: "standard", "natural,pgd20",
        "pgd:num_steps=50,restarts=10"; or attacks, each after the one that it follows.
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8). PGD and C&W take steps
        of a tenth of it, unless the suite says otherwise.
      norm: of the ball, "linf", "l2" or "l1".
      num_queries: of Square, for each image.
      batch_size: images that are attacked at a time.
      workdir: folder for the flags of each attack, written after each batch. A later call with the
        same classifier, images and attacks continues there.
      keep_images: whether to return adversarial images; with a `workdir` they are there, as .npy.
      progress: whether to show bars, and a line for each attack.

    Returns:
      Results by the names of the attacks, in their order: accuracy, 95% interval, one flag for
      each image, forward passes, seconds.

    Raises:
      UsageError: for arguments that attacks refuse, and for unknown suites and attacks.
      RuntimeError: if an attack leaves its ball or the pixel range.
    """
    check_batch(images, labels)
    if not len(images):
        raise UsageError("There are no images; expected at least one.")
    check_labels(labels, as_logits_fn(logits_fn, images[:1])[1])
    chosen = _attacks(suite, epsilon, norm, num_queries) if isinstance(suite, str) else suite
    split = Split(np.asarray(images), np.asarray(labels, np.int32))
    apply, variables, program = _as_apply(logits_fn, images[:1])
    evaluator = Evaluator(apply, as_key(key), batch_size, jax.local_devices())
    arrays = weights.fingerprint([jax.random.key_data(as_key(key)), *split, *variables])
    digest = hashlib.sha256(f"{program}{arrays}".encode()).hexdigest()
    bars, total = AttackProgress(shown=progress), len(images)
    results: dict[str, Result] = {}
    for named in chosen:
        previous = before(named, results)
        place = _place(workdir, named, digest, keep_images)
        num_attacked = total if previous is None else int(previous.flags.sum())
        with bars.bar(named.name, named.conditions, total, num_attacked) as on_batch:
            result = results[named.name] = evaluator(
                variables,
                named,
                split,
                before=previous,
                place=place,
                keep="float32" if keep_images else "none",
                on_batch=on_batch,
            )
        if progress:
            low, high = (100 * bound for bound in result.interval)
            tqdm.write(
                f"{named.name}: accuracy {100 * result.accuracy:.2f}% ({low:.1f} to {high:.1f}) "
                f"of {total} images, {result.seconds:.1f} s"
            )
    return results


def _attacks(suite: str, epsilon: float, norm: str, num_queries: int) -> list[NamedAttack]:
    """The attacks of the words of a suite."""
    others = {"curve": "`Evaluator.curve` has the radii", "corruptions": "`data.corrupt` has them"}
    for word, instead in others.items():
        if word in words(suite):
            raise UsageError(f"The suite has {word!r}; expected attacks: {instead}.")
    check_radius(norm, epsilon=epsilon)
    test: dict[str, Any] = default.get_config().test.to_dict()
    test |= dict(norm=norm, epsilon=float(epsilon), step_size=epsilon / 10, cw_epsilon=epsilon)
    test |= dict(cw_random_start=True, num_queries=num_queries)
    return evaluation_attacks(ConfigDict({"evaluation": suite, "test": test}))


def _as_apply(logits_fn: LogitsFn, images: Array) -> tuple[ApplyFn, list[Array], str]:
    """(apply, variables, program): `apply(variables, images)` is `logits_fn(images)`.

    The variables are the arrays that the function closes over, so that they are arguments of
    compiled programs and not constants in them. `program` is the text of the computation.
    """

    def trace(images: Any) -> Any:
        return jax.make_jaxpr(lambda images: logits_fn(images))(images)

    closed = trace(images)
    variables = list(closed.consts)

    def apply(variables: list[Array], images: Array) -> Array:
        given = {id(const): new for const, new in zip(closed.consts, variables, strict=True)}
        here = trace(jax.ShapeDtypeStruct(images.shape, images.dtype))
        consts = [given.get(id(const), const) for const in here.consts]
        (logits,) = jax.core.eval_jaxpr(here.jaxpr, consts, images)
        return logits

    return apply, variables, re.sub(r"0x[0-9a-f]+", "", str(closed))


def _place(
    workdir: str | pathlib.Path | None, named: NamedAttack, digest: str, keep_images: bool
) -> Place | None:
    """The files of an attack in `workdir`; their names have the digest of all that decides them."""
    if workdir is None:
        return None
    folder = pathlib.Path(workdir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    key = json.dumps([digest, named.conditions], sort_keys=True, allow_nan=False)
    stem = f"{named.name}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return Place(folder / f"{stem}.npz", key, folder / f"{stem}.npy" if keep_images else None)
