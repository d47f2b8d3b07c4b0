"""Losses: closed forms for two classes, properties, and extreme logits."""

import functools
from math import log

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cat_jax import losses, methods, objectives
from cat_jax.errors import UsageError
from cat_jax.types import MixedLabels, Views

cat = {c: methods.cat(None, beta=5.0, beta1=0.3, conventions=c) for c in methods.CONVENTIONS}


def of(loss, view, **constants):
    """A loss of logits and labels, of one view's logits."""
    return lambda z, y: loss(getattr(z, view), y, **constants)


def kl(p, q, **constants):
    return lambda z, y: losses.kl_divergence(
        p_logits=getattr(z, p), q_logits=getattr(z, q), **constants
    )


def paired(distance):
    return lambda z, y: distance(z.adversarial - z.natural)


# Compiling is most of the time of these tests.
quickly_compiled = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


def differentiate(loss, logits, labels):
    """([B], gradients by the views)."""

    def total(z):
        each = loss(z, labels)
        return each.sum(), each

    grads, each = jax.grad(total, has_aux=True)(logits)
    return each, grads


# Two classes, z = (0, t): the true one, class 1, has probability 1 / (1 + e^-t).
#                         t       p
TWO_CLASSES = Views(
    natural=[[0.0, log(3)]],  # 3/4
    adversarial=[[0.0, -log(4)]],  # 1/5
    calibrated=[[0.0, 0.0]],  # 1/2
)
# sum of P log(P/Q), the true class first.
KL_NAT_ADV = 3 / 4 * log(15 / 4) + 1 / 4 * log(5 / 16)
KL_NAT_CALI = 3 / 4 * log(3 / 2) + 1 / 4 * log(1 / 2)
KL_CALI_NAT = 1 / 2 * log(2 / 3) + 1 / 2 * log(2)
KL_ADV_CALI = 1 / 5 * log(2 / 5) + 4 / 5 * log(8 / 5)
KL_CALI_ADV = 1 / 2 * log(5 / 2) + 1 / 2 * log(5 / 8)
# CE(x') = log 5, minus log(1.0001 - 4/5 + 1e-12), as MART's code writes it.
BOOSTED_ADV = log(5) - log(1.0001 - 4 / 5 + 1e-12)
# MART's Q has 1e-12 on top: log(q + e) = log q + e/q to first order.
KL_MART = KL_NAT_ADV - 1e-12 * (3 / 4 * 5 + 1 / 4 * 5 / 4)

CLOSED_FORMS = {
    "cross_entropy": (of(losses.cross_entropy, "natural"), log(4 / 3)),
    "true_probability": (of(losses.true_probability, "natural"), 3 / 4),
    "weighted_cross_entropy": (of(losses.weighted_cross_entropy, "natural"), 1 / 4 * log(4 / 3)),
    "weighted_cross_entropy, released": (
        of(losses.weighted_cross_entropy, "natural", certain=1.0000001),
        0.2500001 * log(4 / 3),
    ),
    "kl_divergence": (kl("natural", "adversarial"), KL_NAT_ADV),
    "kl_divergence, turned round": (kl("calibrated", "natural"), KL_CALI_NAT),
    # Q + 1/20 is (17/20, 1/4).
    "kl_divergence, q_offset": (
        kl("natural", "adversarial", q_offset=1 / 20),
        3 / 4 * log(3) + 1 / 4 * log(5 / 17),
    ),
    "margin": (of(losses.margin, "natural"), -log(3)),
    "margin, misclassified": (of(losses.margin, "adversarial"), log(4)),
    "soft_logit_margin": (of(losses.soft_logit_margin, "natural"), -log(3)),
    "boosted_cross_entropy": (of(losses.boosted_cross_entropy, "adversarial"), BOOSTED_ADV),
    # x' - x is (0, -log 4 - log 3).
    "euclidean_norm": (paired(losses.euclidean_norm), log(12)),
    "mean_square": (paired(losses.mean_square), log(12) ** 2 / 2),
    "adversarial margin": (objectives.AdversarialMargin(2.0), log(4)),
    "adversarial margin, over kappa": (objectives.AdversarialMargin(1.0), 1.0),
    "standard": (methods.standard().classifier_loss, log(4 / 3)),
    "at": (methods.at(None).classifier_loss, log(5)),
    "trades": (methods.trades(None, beta=6.0).classifier_loss, log(4 / 3) + 6 * KL_NAT_ADV),
    "mart": (
        methods.mart(None, weight=5.0).classifier_loss,
        BOOSTED_ADV + 5 * 0.2500001 * KL_MART,
    ),
    "alp": (methods.alp(None, weight=0.5).classifier_loss, log(5) + 0.5 * log(12)),
    "fat": (
        methods.fat(None, beta=6.0, tau=None).classifier_loss,
        log(4 / 3) + 6 * KL_NAT_ADV,
    ),
    "alp, published": (
        methods.alp(
            None, weight=0.5, natural_weight=0.5, adversarial_weight=0.5, pairing="mean_square"
        ).classifier_loss,
        0.5 * log(4 / 3) + 0.5 * log(5) + 0.5 * log(12) ** 2 / 2,
    ),
    "mma": (methods.mma(None).classifier_loss, log(5)),
    "cat theta, paper": (cat["paper"].classifier_loss, 1 / 4 * log(4 / 3) + 5 * KL_CALI_NAT),
    "cat phi, paper": (cat["paper"].mask_loss, KL_CALI_ADV + 0.3 * log(2)),
    "cat theta, released": (
        cat["released"].classifier_loss,
        0.2500001 * log(4 / 3) + 5 * KL_NAT_CALI,
    ),
    "cat phi, released": (cat["released"].mask_loss, KL_ADV_CALI + 0.3 * log(2)),
}


def arrays(views, dtype="float64"):
    return Views(*(None if view is None else jnp.asarray(view, dtype) for view in views))


@functools.cache
def two_classes():
    """{name: ([1], gradients)} of all closed forms, in float64."""

    @quickly_compiled
    def results(logits):
        labels = jnp.array([1])
        return {n: differentiate(loss, logits, labels) for n, (loss, _) in CLOSED_FORMS.items()}

    with jax.enable_x64(True):
        return jax.device_get(results(arrays(TWO_CLASSES)))


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_two_classes_have_a_closed_form(name):
    each, _ = two_classes()[name]
    np.testing.assert_allclose(each, [CLOSED_FORMS[name][1]], rtol=1e-12)


def test_mma_trains_on_x_where_x_is_already_wrong(float64):
    wrong = methods.mma(None).classifier_loss(arrays(TWO_CLASSES), jnp.array([0]))
    np.testing.assert_allclose(wrong, [log(4)], rtol=1e-12)  # Class 0 has 1/4 on x, 4/5 on x'.


# The derivative by the true logit t of one view: p' = p (1 - p), which is 3/16 on x, 4/25 on x'.
GRADIENTS = {
    ("cross_entropy", "natural"): -1 / 4,  # p - 1
    # p' = 3/16 times minus CE, and 1 - p times p - 1: through the weight too.
    ("weighted_cross_entropy", "natural"): -3 / 16 * log(4 / 3) - 1 / 16,
    ("true_probability", "natural"): 3 / 16,
    ("kl_divergence, turned round", "natural"): 1 / 4,  # By Q's logit: q - p = 3/4 - 1/2.
    ("kl_divergence, turned round", "calibrated"): -1 / 4 * log(3),  # P's: p' (t_P - t_Q).
    ("margin", "natural"): -1.0,
    ("soft_logit_margin", "natural"): -1.0,
    # p - 1, minus p' over what the logarithm is taken of: 1 - 4/5 is p itself.
    ("boosted_cross_entropy", "adversarial"): -4 / 5 - 4 / 25 / (1.0001 - 4 / 5 + 1e-12),
    ("euclidean_norm", "adversarial"): -1.0,
    ("mean_square", "adversarial"): -log(12),
    ("adversarial margin", "adversarial"): -1.0,
    ("adversarial margin, over kappa", "adversarial"): 0.0,
}


@pytest.mark.parametrize("name, view", GRADIENTS)
def test_two_classes_have_a_gradient_in_closed_form(name, view):
    _, grads = two_classes()[name]
    np.testing.assert_allclose(getattr(grads, view)[0, 1], GRADIENTS[name, view], rtol=1e-12)


def test_the_logit_ratio_divides_by_the_gap_to_the_third_logit(float64):
    logits = jnp.array([[0.0, 3.0, 1.0]] * 2)
    ratio = losses.logit_ratio(logits, jnp.array([1, 0]))
    np.testing.assert_allclose(ratio, [-2 / 3, 3 / 3], rtol=1e-11)  # The gap is 3 - 0.


def test_the_targeted_logit_ratio_divides_by_the_gap_to_the_third_and_fourth(float64):
    logits, labels = jnp.array([[0.0, 5.0, 1.0, 3.0]] * 2), jnp.array([1, 0])
    ratio = losses.targeted_logit_ratio(logits, labels, jnp.array([3, 2]))
    np.testing.assert_allclose(ratio, [(3 - 5) / 4.5, (1 - 0) / 4.5], rtol=1e-11)  # 5 - (1 + 0)/2


@pytest.mark.parametrize("classes, least", [(1, 3), (2, 3), (2, 4), (3, 4)])
def test_logit_ratios_refuse_logits_of_too_few_classes(classes, least):
    y = jnp.zeros(1, int)
    ratio = {
        3: lambda z: losses.logit_ratio(z, y),
        4: lambda z: losses.targeted_logit_ratio(z, y, y),
    }[least]
    with pytest.raises(UsageError, match=rf"{classes} classes; .* at least {least}: use margin"):
        jax.eval_shape(ratio, jnp.zeros((1, classes)))


def phi(method):
    """The mask network's loss with x in the place of x'."""
    return lambda z, y: method.mask_loss(Views(None, z.natural, z.calibrated), y)


# Every loss once, for the properties. Each reads x, or x' or x'_cali, or x and one of the two.
CLASS_COUNT = 5
PAIRED = {
    "euclidean_norm": paired(losses.euclidean_norm),
    "mean_square": paired(losses.mean_square),
    "alp": methods.alp(None, weight=0.5).classifier_loss,
}
EVERY_LOSS = PAIRED | {
    "cross_entropy": methods.standard().classifier_loss,
    "true_probability": of(losses.true_probability, "natural"),
    "weighted_cross_entropy": of(losses.weighted_cross_entropy, "natural"),
    "kl_divergence": kl("natural", "adversarial"),
    "kl_divergence, q_offset": kl("natural", "adversarial", q_offset=1e-12),
    "margin": of(losses.margin, "natural"),
    "soft_logit_margin": of(losses.soft_logit_margin, "natural"),
    "boosted_cross_entropy": of(losses.boosted_cross_entropy, "natural"),
    "logit_ratio": of(losses.logit_ratio, "natural"),
    "adversarial margin": objectives.AdversarialMargin(50.0),
    "at": methods.at(None).classifier_loss,
    "trades": methods.trades(None, beta=6.0).classifier_loss,
    "mart": methods.mart(None, weight=5.0).classifier_loss,
    "mma": methods.mma(None).classifier_loss,
    "cat theta, paper": cat["paper"].classifier_loss,
    "cat phi, paper": phi(cat["paper"]),
    "cat theta, released": cat["released"].classifier_loss,
    "cat phi, released": phi(cat["released"]),
}
LEAST_CLASSES = {"logit_ratio": 3, "targeted_logit_ratio": 4}


def losses_for(num_classes, targets):
    """{name: loss}: those that are defined for so many classes."""
    targeted = of(losses.targeted_logit_ratio, "natural", targets=targets)
    every = EVERY_LOSS | {"targeted_logit_ratio": targeted}
    return {name: f for name, f in every.items() if num_classes >= LEAST_CLASSES.get(name, 2)}


@quickly_compiled
def all_values(logits, labels, targets):
    every = losses_for(logits.natural.shape[-1], targets)
    return {name: loss(logits, labels) for name, loss in every.items()}


def values(logits, labels, targets):
    """{name: [B]} in float64: entered here, as a fixture would span all examples of a property."""
    with jax.enable_x64(True):
        return jax.device_get(all_values(arrays(logits), labels, targets))


def assert_equal(got, want, scale=1.0, names=None):
    for name in names or want:
        np.testing.assert_allclose(
            got[name], scale * want[name], rtol=1e-9, atol=1e-11, err_msg=name
        )


SIZE = (6, CLASS_COUNT)
few = hypothesis.settings(derandomize=True, max_examples=30, deadline=None)
class_indices = hnp.arrays(np.int64, SIZE[0], elements=st.integers(0, CLASS_COUNT - 1))
# No two logits of a row are equal: among equals, an arg-max goes by the order of the classes.
batches = st.tuples(
    hnp.arrays(np.int64, (3, *SIZE), elements=st.integers(-240, 240)).map(
        lambda eighths: Views(*(eighths / 8 + 0.001 * np.arange(CLASS_COUNT)))
    ),
    class_indices,
    class_indices,
)


def each_view(change, logits):
    return Views(*(change(view) for view in logits if view is not None))


@pytest.mark.slow
@few
@hypothesis.given(batches, st.permutations(range(SIZE[0])))
def test_permuting_the_batch_permutes_the_losses(batch, order):
    logits, labels, targets = batch
    got = values(each_view(lambda z: z[order], logits), labels[order], targets[order])
    assert_equal(got, {name: each[order] for name, each in values(*batch).items()})


@few
@hypothesis.given(batches, st.permutations(range(CLASS_COUNT)))
def test_renaming_the_classes_leaves_the_losses(batch, order):
    logits, labels, targets = batch
    new = np.argsort(order)
    got = values(each_view(lambda z: z[:, order], logits), new[labels], new[targets])
    assert_equal(got, values(*batch))


@few
@hypothesis.given(batches, hnp.arrays(np.int64, (3, SIZE[0], 1), elements=st.integers(-1000, 1000)))
def test_a_constant_on_all_logits_of_a_row_leaves_the_losses(batch, constants):
    logits, labels, targets = batch
    want = values(*batch)
    shifted = Views(*(z + c for z, c in zip(logits[:3], constants, strict=True)))
    unpaired = [name for name in want if name not in PAIRED]
    assert_equal(values(shifted, labels, targets), want, names=unpaired)
    together = each_view(lambda z: z + constants[0], logits)
    assert_equal(values(together, labels, targets), want)


@few
@hypothesis.given(batches, st.floats(0.01, 100))
def test_ratios_are_invariant_to_scale_and_margins_grow_with_it(batch, scale):
    logits, labels, targets = batch
    want = values(*batch)
    got = values(each_view(lambda z: scale * z, logits), labels, targets)
    for name in ("logit_ratio", "targeted_logit_ratio"):  # But for the 1e-12 beside the gap.
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)
    assert_equal(got, want, scale, ["margin", "euclidean_norm"])
    assert_equal(got, want, scale**2, ["mean_square"])


@few
@hypothesis.given(batches)
def test_entropies_and_divergences_are_not_negative(batch):
    logits, labels, targets = batch
    each = values(*batch)
    for name in ("cross_entropy", "weighted_cross_entropy", "kl_divergence", "euclidean_norm"):
        assert (each[name] >= -1e-12).all(), name
    itself = values(Views(*[logits.natural] * 3), labels, targets)
    np.testing.assert_allclose(itself["kl_divergence"], 0.0, atol=1e-12)
    np.testing.assert_allclose(itself["trades"], itself["cross_entropy"], rtol=1e-9, atol=1e-11)


@few
@hypothesis.given(batches)
def test_the_soft_margin_exceeds_the_margin_by_at_most_the_log_of_the_wrong_classes(batch):
    each = values(*batch)
    excess = each["soft_logit_margin"] - each["margin"]
    assert (excess >= -1e-11).all() and (excess <= log(CLASS_COUNT - 1) + 1e-11).all()


@pytest.mark.parametrize(
    "loss, want",
    [
        (of(losses.cross_entropy, "natural"), 0.0),
        (of(losses.cross_entropy, "adversarial"), 1000.0),
        (of(losses.weighted_cross_entropy, "adversarial"), 1000.0),
        (kl("natural", "adversarial"), 1000.0),
        (kl("natural", "adversarial", q_offset=1e-12), 12 * log(10)),
        (of(losses.boosted_cross_entropy, "adversarial"), 1000.0 - log(0.0001 + 1e-12)),
        (of(losses.soft_logit_margin, "adversarial"), 1000.0),
    ],
)
def test_probabilities_that_underflow_leave_the_right_value(dtype, loss, want):
    logits = arrays(Views([[0.0, 1000.0]], [[0.0, -1000.0]]), dtype)
    np.testing.assert_allclose(loss(logits, jnp.array([1])), [want], rtol=1e-6)


def test_a_tie_of_three_leaves_the_logit_ratio_1e_12_to_divide_by(dtype):
    logits, labels = jnp.array([[0.0, 0, 0, -1000], [0, 0, 0, -1000]], dtype), jnp.array([2, 3])
    ratio = functools.partial(differentiate, losses.logit_ratio)
    each, grads = quickly_compiled(ratio)(logits, labels)
    np.testing.assert_allclose(each, [0.0, 1000e12], rtol=1e-6)
    # The margin's own gradient, which the two best wrong classes share; and by the gap, squared.
    np.testing.assert_allclose(grads[0], [0.5e12, 0.5e12, -1e12, 0.0], rtol=1e-6)
    np.testing.assert_allclose(np.abs(grads[1]).max(), 1000e24, rtol=1e-6)


ROWS = 12


def nasty_rows(num_classes):
    """[12, K]: ties of all classes, of two and of three, one-hot rows, and almost those."""
    row = np.zeros((ROWS, num_classes))
    row[1] = 1000.0
    row[2] = -1000.0
    row[3, 0] = 1000.0
    row[4], row[4, -1] = -1000.0, 1000.0
    row[5, 0] = -1000.0
    row[6, :2] = 1000.0
    row[7], row[7, -2:] = -1000.0, 1000.0
    row[8, :3] = 1000.0
    row[9, 0] = 1e-12  # As small as what is added to gaps.
    row[10, 0] = 1e-20  # Off row 0 by what float32 squares to a denormal number.
    row[11] = np.linspace(-1000.0, 1000.0, num_classes)
    return row


@quickly_compiled
def values_and_gradients(first, second, labels):
    """{name: ([B], gradients)} of every loss; the views after x have the same logits."""
    num_classes = first.shape[-1]
    every = losses_for(num_classes, targets=(labels + 1) % num_classes)
    logits = Views(first, second, second)
    return {name: differentiate(loss, logits, labels) for name, loss in every.items()}


def assert_finite(rows, dtype):
    """For every pair of rows, with the first two labels and with the last."""
    num_classes = rows.shape[-1]
    i, j, labels = np.indices((ROWS, ROWS, 3)).reshape(3, -1)
    labels[labels == 2] = num_classes - 1
    with jax.enable_x64(dtype == "float64"):
        rows = jnp.asarray(rows, dtype)
        results = jax.device_get(values_and_gradients(rows[i], rows[j], labels))
    bad = {
        n for n, r in results.items() if not all(np.isfinite(x).all() for x in jax.tree.leaves(r))
    }
    assert not bad


extreme = st.sampled_from([0.0, 1000.0, -1000.0, 1e-3, 1e-12, 88.0, -104.0, 745.0, 999.9999])
FINITE_FAST = [("float32", 10)]
any_logit = extreme | st.floats(-1000.0, 1000.0)


@pytest.mark.parametrize(
    "dtype, num_classes",
    [
        pytest.param(dtype, k, marks=() if (dtype, k) in FINITE_FAST else pytest.mark.slow)
        for dtype in ("float64", "float32")
        for k in (2, 3, 10)
    ],
    indirect=["dtype"],
)
def test_every_loss_is_finite_for_extreme_logits(dtype, num_classes):
    assert_finite(nasty_rows(num_classes), dtype)

    @hypothesis.settings(few, max_examples=10)  # Of 432 pairs each.
    @hypothesis.given(hnp.arrays(np.float64, (ROWS, num_classes), elements=any_logit))
    def drawn(rows):
        assert_finite(rows, dtype)

    drawn()


def test_label_smoothing_is_optaxs():
    logits = Views(natural=jnp.asarray(np.random.default_rng(0).normal(size=(6, 5))))
    labels = np.array([0, 1, 2, 3, 4, 0])
    smooth = optax.smooth_labels(jax.nn.one_hot(labels, 5), 0.3)
    want = optax.softmax_cross_entropy(logits.natural, smooth)
    loss = objectives.smoothed(objectives.natural_cross_entropy, 0.3)
    np.testing.assert_allclose(loss(logits, labels), want, rtol=1e-5)


def test_a_loss_of_mixed_labels_weighs_both():
    logits = Views(adversarial=jnp.asarray(np.random.default_rng(0).normal(size=(2, 5))))
    labels = MixedLabels(jnp.array([0, 1]), jnp.array([2, 3]), jnp.array([0.25, 1.0]))
    first, second = (
        objectives.adversarial_cross_entropy(logits, y) for y in (labels.first, labels.second)
    )
    loss = objectives.mixed(objectives.adversarial_cross_entropy)
    want = [0.25 * first[0] + 0.75 * second[0], first[1]]
    np.testing.assert_allclose(loss(logits, labels), want, rtol=1e-6)
