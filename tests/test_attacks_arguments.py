"""Arguments without a meaning or an effect are refused in one line, which names the remedy."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax.tree_util import Partial
from slow_cases import slow

from cat_jax import attacks, objectives
from cat_jax.errors import UsageError
from cat_jax.evaluation import checks

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).uniform(0.2, 0.8, (3, 2, 2, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2])
WEIGHTS = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
PGD = functools.partial(attacks.pgd, epsilon=0.1, step_size=0.05, num_steps=2)
ATTACKS = {
    "pgd": PGD,
    "fgsm": functools.partial(attacks.fgsm, epsilon=0.1),
    "cw_linf": functools.partial(attacks.cw_linf, epsilon=0.1, step_size=0.05, num_steps=2),
    "friendly_pgd": functools.partial(
        attacks.friendly_pgd, epsilon=0.1, step_size=0.05, num_steps=2
    ),
    "apgd": functools.partial(attacks.apgd, epsilon=0.1, num_steps=2),
    "apgd_t": functools.partial(attacks.apgd_t, epsilon=0.1, num_steps=2),
    "fab_t": functools.partial(attacks.fab_t, epsilon=0.1, num_steps=2),
    "square": functools.partial(attacks.square, epsilon=0.1, num_queries=2),
    "cw_l2": functools.partial(attacks.cw_l2, num_steps=2, num_searches=2),
    "standard": functools.partial(attacks.standard, epsilon=0.1, num_steps=2, num_queries=2),
}
COMPOSED = {
    "restarts": attacks.restarts(PGD, 2),
    "union": attacks.union([PGD, ATTACKS["fab_t"]]),
}


def linear(images):
    return images.reshape(len(images), -1) @ WEIGHTS


def refusal(attack, *arguments, **hyper):
    """The one line with which `attack` refuses its arguments."""
    with pytest.raises(UsageError) as error:
        attack(*arguments, **hyper)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "name, hyper, message",
    [
        ("pgd", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("pgd", dict(num_steps=-3), "num_steps=-3; expected at least 1."),
        ("pgd", dict(num_steps=10.0), "num_steps=10.0; expected an integer."),
        ("pgd", dict(num_steps="10"), "num_steps='10'; expected an integer."),
        ("pgd", dict(tau=-1), "tau=-1; expected at least 0."),
        ("cw_linf", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("apgd", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("apgd", dict(num_restarts=0), "num_restarts=0; expected at least 1."),
        ("apgd", dict(rho=1.5), "rho=1.5; expected [0, 1]."),
        ("apgd", dict(loss=None), "loss is None; expected a function: apgd_t is the targeted"),
        ("apgd_t", dict(num_targets=0), "num_targets=0; expected at least 1."),
        ("fab_t", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("fab_t", dict(beta=-1), "beta=-1; expected [0, 1]."),
        ("fab_t", dict(eta=0.0), "eta=0.0; expected a number above 0."),
        ("square", dict(num_queries=0), "num_queries=0; expected at least 1."),
        ("square", dict(num_queries=2.5), "num_queries=2.5; expected an integer."),
        ("cw_l2", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("cw_l2", dict(num_searches=-1), "num_searches=-1; expected at least 1."),
        ("cw_l2", dict(learning_rate=0.0), "learning_rate=0.0; expected a number above 0."),
        ("cw_l2", dict(kappa=-1.0), "kappa=-1.0; expected a number from 0."),
        ("standard", dict(num_steps=0), "num_steps=0; expected at least 1."),
        ("standard", dict(num_queries=0), "num_queries=0; expected at least 1."),
        ("pgd", dict(epsilon="8/255"), "epsilon='8/255'; expected a number: 8 of 255 is 8/255."),
        ("pgd", dict(epsilon=None), "epsilon=None; expected a number: 8 of 255 is 8/255."),
        ("standard", dict(epsilon="8/255"), "epsilon='8/255'; expected a number"),
        ("pgd", dict(pixel_range=(0, 255)), "pixel_range=(0, 255); expected (low, high) in [0, 1]"),
        ("pgd", dict(pixel_range=1.0), "pixel_range=1.0; expected (low, high) in [0, 1]"),
        ("pgd", dict(norm="l3"), "norm is 'l3'; available: linf, l2, l1."),
        ("pgd", dict(loss="kl"), "loss is a str; expected a function"),
        ("pgd", dict(start=IMAGES[:1]), "start has the shape [1, 2, 2, 3]; expected that of the"),
        ("apgd", dict(start=IMAGES[:1]), "start has the shape [1, 2, 2, 3]; expected that of the"),
        (
            "pgd",
            dict(start=IMAGES, random_start=True),
            "random_start=True and a start are given; expected one of them",
        ),
        ("cw_linf", dict(loss=objectives.adversarial_kl), "cw_linf takes no loss"),
    ],
)
def test_attacks_of_nothing_and_values_out_of_range(name, hyper, message):
    assert refusal(ATTACKS[name], linear, IMAGES, LABELS, KEY, **hyper).startswith(message)


def test_restarts_and_unions_of_nothing():
    assert refusal(attacks.restarts, PGD, 0) == "num_restarts=0; expected at least 1."
    assert "at least one" in refusal(attacks.union, [])


@pytest.mark.parametrize(
    "name, argument",
    [
        ("fgsm", "num_steps"),
        ("fgsm", "random_start"),
        ("fgsm", "step_size"),
        ("fgsm", "tau"),
        ("fgsm", "start"),
        ("apgd", "random_start"),
        ("apgd", "step_size"),
        ("apgd_t", "loss"),
        ("fab_t", "loss"),
        ("fab_t", "num_restarts"),
        ("square", "num_steps"),
        ("square", "loss"),
        ("cw_l2", "epsilon"),
        ("cw_l2", "pixel_range"),
        ("standard", "loss"),
        ("friendly_pgd", "kappa"),
    ],
)
def test_an_argument_without_an_effect_is_no_argument(name, argument):
    with pytest.raises(TypeError, match=argument):
        ATTACKS[name](linear, IMAGES, LABELS, KEY, **{argument: 1})


@pytest.mark.parametrize(
    "images, message",
    [
        (IMAGES.tolist(), "images are a list; expected an array of NumPy or JAX"),
        (IMAGES[0], "images are float32[2, 2, 3]; expected floats [B, H, W, C] in [0, 1]: add an"),
        (
            (255 * IMAGES).astype(np.uint8),
            "images are uint8[3, 2, 2, 3]; expected floats [B, H, W, C] in [0, 1]: "
            "images.astype(jnp.float32) / 255.",
        ),
        ((65535 * IMAGES).astype(np.uint16), "images are uint16[3, 2, 2, 3]; expected floats"),
        ((IMAGES > 0.5).astype(np.uint8), "images are uint8[3, 2, 2, 3]; expected floats"),
        (IMAGES > 0.5, "images are bool[3, 2, 2, 3]; expected floats"),
        (IMAGES.astype(int) + 7, "images are int64[3, 2, 2, 3]; expected floats"),
    ],
)
@pytest.mark.parametrize("name", ["pgd", "standard"])
def test_images_that_are_not_floats(name, images, message):
    assert refusal(ATTACKS[name], linear, images, LABELS, KEY).startswith(message)


@pytest.mark.parametrize(
    "images, remedy",
    [
        ((255 * IMAGES).astype(np.uint8), "images.astype(jnp.float32) / 255"),
        ((65535 * IMAGES).astype(np.uint16), "images.astype(jnp.float32) / 65535"),
        ((IMAGES > 0.5).astype(np.uint8), "images.astype(jnp.float32), without a division"),
        ((IMAGES > 0.5).astype(np.uint16), "images.astype(jnp.float32), without a division"),
        (IMAGES > 0.5, "images.astype(jnp.float32), without a division"),
    ],
)
def test_the_remedy_gives_the_images_that_were_meant(images, remedy):
    """What the message says is done here, and gives images that span [0, 1] and are accepted."""
    assert remedy in refusal(PGD, linear, images, LABELS, KEY)
    remedied = eval(remedy.partition(",")[0], {"images": images, "jnp": jnp})
    assert 0.7 < float(remedied.max()) <= 1.0
    PGD(linear, remedied, LABELS, KEY)


def test_labels_as_a_list():
    assert refusal(PGD, linear, IMAGES, [0, 1, 2], KEY).startswith("labels are a list; expected an")


@pytest.mark.parametrize("form", [(3,), slow((3, 1, 1, 1))])
@pytest.mark.parametrize("name", ["pgd", slow("apgd"), slow("fab_t"), slow("square")])
def test_a_radius_for_each_image(name, form):
    """Three RGB images: radii of shape [3] are not those of the channels."""
    radii = np.array([0.0, 0.1, 0.3], np.float32)
    labels = linear(IMAGES).argmax(-1)
    adversarial = ATTACKS[name](linear, IMAGES, labels, KEY, epsilon=radii.reshape(form))
    moved = np.abs(adversarial - IMAGES).max((1, 2, 3))
    assert (moved <= radii + 1e-6).all() and moved[2] > 0.04
    one = ATTACKS[name](linear, IMAGES, labels, KEY, epsilon=0.3)
    np.testing.assert_allclose(adversarial[2], one[2], atol=1e-6)
    as_list = ATTACKS[name](linear, IMAGES, labels, KEY, epsilon=radii.tolist())
    np.testing.assert_array_equal(as_list, adversarial)


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 3), (3, 2, 2, 3), (1, 1, 1, 3)])
@pytest.mark.parametrize("name", ["pgd", "apgd", "fab_t", "square", "standard"])
def test_radii_of_another_shape(name, shape):
    message = refusal(ATTACKS[name], linear, IMAGES, LABELS, KEY, epsilon=np.full(shape, 0.1))
    assert message.startswith(f"epsilon has the shape {list(shape)}; expected one number, or one")


@pytest.mark.parametrize("name", [*ATTACKS, *COMPOSED])
def test_no_images_give_no_images(name):
    attack = (ATTACKS | COMPOSED)[name]
    adversarial = attack(linear, IMAGES[:0], LABELS[:0], KEY)
    assert adversarial.shape == (0, 2, 2, 3) and adversarial.dtype == np.float32


def test_no_images_give_no_queries():
    result = attacks.square_with_queries(linear, IMAGES[:0], LABELS[:0], KEY, epsilon=0.1)
    assert [x.shape for x in result] == [(0, 2, 2, 3), (0,), (0,)]


@pytest.mark.parametrize(
    "logits_fn, message",
    [
        (lambda x: (linear(x), x), "logits_fn returns a tuple; expected logits [3, K], floating"),
        (lambda x: linear(x)[:, 0], "logits_fn returns float32[3]; expected logits [3, K]"),
        (lambda x: linear(x)[:, :1], "logits_fn returns float32[3, 1]; expected logits [3, K]"),
        (lambda x: linear(x).T[:, :2], "logits_fn returns float32[3, 2]"),
        (lambda x: linear(x).mean(0), "logits_fn returns float32[3]; expected logits [3, K]"),
        (lambda x: linear(x).argmax(-1, keepdims=True) + jnp.arange(3)[None], "logits_fn returns"),
        (WEIGHTS, "logits_fn is a ndarray; expected a function"),
        (None, "logits_fn is a NoneType; expected a function"),
        (lambda x: linear(np.asarray(x)), "logits_fn needs the value of an array that JAX traces"),
        (lambda x: linear(x) if x[0, 0, 0, 0] > 0 else x, "logits_fn needs the value of an array"),
    ],
)
@pytest.mark.parametrize("name", ["pgd", "standard"])
def test_a_classifier_that_gives_no_logits(name, logits_fn, message):
    if "2]" in message:
        logits_fn = lambda x: jnp.zeros((len(x) + 1, 3))  # noqa: E731
        message = "logits_fn returns float32[4, 3]; expected logits [3, K]"
    assert refusal(ATTACKS[name], logits_fn, IMAGES, LABELS, KEY).startswith(message)


class Classifier(nn.Module):
    """With batch norm, and dropout if asked for."""

    dropout: bool = False

    @nn.compact
    def __call__(self, images, train=True):
        x = nn.BatchNorm(use_running_average=not train)(images.reshape(len(images), -1))
        if self.dropout:
            x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(3)(x)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [False, True])
def test_linen_flags_in_a_partial_and_training_mode(dropout):
    module = Classifier(dropout)
    variables = module.init(jax.random.key(0), IMAGES, train=False)
    adversarial = PGD(Partial(module.apply, variables, train=False), IMAGES, LABELS, KEY)
    bound = Partial(functools.partial(module.apply, train=False), variables)
    np.testing.assert_array_equal(adversarial, PGD(bound, IMAGES, LABELS, KEY))
    assert np.abs(adversarial - IMAGES).max() > 0.09
    message = refusal(PGD, Partial(module.apply, variables, train=True), IMAGES, LABELS, KEY)
    assert "train=False" in message
    mutable = Partial(module.apply, variables, train=not dropout, mutable=["batch_stats"])
    assert "returns a tuple" in refusal(PGD, mutable, IMAGES, LABELS, KEY)


class NnxClassifier(nnx.Module):
    def __init__(self, layer, rngs):
        self.layer, self.last = layer(rngs), nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, images):
        return self.last(self.layer(images.reshape(len(images), -1)))


def batch_norm(rngs):
    return nnx.BatchNorm(12, rngs=rngs)


def dropout(rngs):
    return nnx.Dropout(0.5, rngs=rngs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer, in_lambda",
    [
        (batch_norm, False),
        (dropout, True),
        (batch_norm, True),
        (dropout, False),
    ],
)
def test_an_nnx_model_in_training_mode(layer, in_lambda):
    model = NnxClassifier(layer, nnx.Rngs(0))
    logits_fn = (lambda images: model(images)) if in_lambda else model
    model.train()
    for attack in ("pgd", "apgd", "square"):
        assert "call model.eval() first" in refusal(ATTACKS[attack], logits_fn, IMAGES, LABELS, KEY)
    (finding,) = checks.examine(logits_fn, IMAGES, LABELS, KEY, epsilon=0.1)
    assert finding.name == "inference_mode" and not finding.passed
    assert "model.eval()" in finding.text
    model.eval()
    assert np.abs(PGD(logits_fn, IMAGES, LABELS, KEY) - IMAGES).max() > 0.09
    assert "inference_mode" not in [
        f.name for f in checks.examine(logits_fn, IMAGES, LABELS, KEY, epsilon=0.1)
    ]


def test_raw_keys_are_wrapped():
    np.testing.assert_array_equal(
        PGD(linear, IMAGES, LABELS, jax.random.PRNGKey(3)),
        PGD(linear, IMAGES, LABELS, jax.random.key(3)),
    )
    np.testing.assert_array_equal(
        PGD(linear, IMAGES, LABELS, jax.random.split(jax.random.PRNGKey(3), 3)),
        PGD(linear, IMAGES, LABELS, jax.random.split(jax.random.key(3), 3)),
    )


@pytest.mark.parametrize(
    "key, message",
    [
        (0, "key is int32[]; expected one as jax.random.key(0) makes it"),
        (None, "key is None; expected one as jax.random.key(0) makes it"),
        (jax.random.split(KEY, 2), "There are [2] keys for 3 images; expected one key, or one for"),
        (jax.random.split(KEY, (3, 1)), "There are [3, 1] keys for 3 images; expected one key"),
        (np.zeros(3, np.uint32), "key is uint32[3]; expected one as"),
    ],
)
@pytest.mark.parametrize("name", ["pgd", "square"])
def test_other_keys_are_refused(name, key, message):
    assert refusal(ATTACKS[name], linear, IMAGES, LABELS, key).startswith(message)


@pytest.mark.parametrize(
    "hyper, text",
    [
        (
            dict(epsilon=0.3, step_size=0.001, num_steps=10),
            "num_steps=10 of step_size=0.001 move a pixel by at most 0.01, less than epsilon=0.3",
        ),
        (dict(epsilon=0.3, step_size=0.001, num_steps=10, random_start=False), "set step_size to"),
        slow(dict(epsilon=1.0, step_size=0.1, num_steps=2, norm="l2"), "an image by at most 0.2"),
    ],
)
def test_steps_that_cannot_reach_the_edge_warn(hyper, text):
    for attack in (
        lambda: attacks.pgd(linear, IMAGES, LABELS, KEY, **hyper),
        lambda: jax.jit(lambda x: attacks.pgd(linear, x, LABELS, KEY, **hyper))(IMAGES),
        lambda: attacks.pgd_with_state(
            lambda state, x: (linear(x), state), None, IMAGES, LABELS, KEY, **hyper
        ),
    ):
        with pytest.warns(UserWarning) as caught:
            attack()
        assert len(caught) == 1 and text in str(caught[0].message)
        assert "\n" not in str(caught[0].message) and caught[0].filename == __file__


def test_steps_that_reach_the_edge_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attacks.fgsm(linear, IMAGES, LABELS, KEY, epsilon=0.3)
        attacks.pgd(linear, IMAGES, LABELS, KEY, epsilon=0.3, step_size=0.015, num_steps=20)
        attacks.pgd(linear, IMAGES, LABELS, KEY, epsilon=0.0, step_size=0.0, num_steps=1)
        hyper = dict(epsilon=0.3, step_size=0.01, num_steps=1)
        attacks.pgd(linear, IMAGES, LABELS, KEY, start=IMAGES, **hyper)
        jax.jit(lambda e: attacks.pgd(linear, IMAGES, LABELS, KEY, **hyper | {"epsilon": e}))(0.3)


@pytest.mark.slow
def test_a_label_that_is_no_class_inside_jit_gives_the_image_back():
    labels = np.array([0, 3, -1])

    @jax.jit
    def attacked(labels):
        return PGD(linear, IMAGES, labels, KEY)

    adversarial = attacked(labels)
    np.testing.assert_array_equal(adversarial[1:], IMAGES[1:])
    np.testing.assert_array_equal(adversarial[0], PGD(linear, IMAGES[:1], LABELS[:1], KEY)[0])
