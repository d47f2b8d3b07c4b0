"""`evaluation.evaluate`: any classifier, on arrays, in one call; attacks named with arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks import NamedAttack
from cat_jax.configs import digits
from cat_jax.errors import UsageError
from cat_jax.evaluation import checks, evaluate
from cat_jax.experiment import attack_words, labels, settings
from cat_jax.experiment.evaluation_attacks import evaluation_attacks

KEY = jax.random.key(0)
WEIGHTS = jax.random.normal(jax.random.key(1), (16, 10))
IMAGES = jax.random.uniform(jax.random.key(2), (70, 4, 4, 1))
SUITE = "natural,pgd:num_steps=3,restarts=2,apgd:num_steps=2"


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


LABELS = linear(WEIGHTS, IMAGES).argmax(-1)


LOGITS_FN = Partial(linear, WEIGHTS)


def run(logits_fn=LOGITS_FN, suite=SUITE, **more):
    hyper = dict(epsilon=0.05, batch_size=32, progress=False) | more
    return evaluate(logits_fn, IMAGES, LABELS, KEY, suite=suite, **hyper)


class Model(nnx.Module):
    def __init__(self):
        self.weights = nnx.Param(WEIGHTS)

    def __call__(self, images):
        return linear(self.weights[...], images)


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        dict(batch_size=7),
        dict(logits_fn=lambda x: linear(WEIGHTS, x)),
        dict(logits_fn=Model()),
    ],
    ids=["batch size", "closure", "NNX"],
)
def test_flags_depend_neither_on_the_batch_size_nor_on_the_kind_of_function(other):
    results, again = run(), run(**other)
    assert list(results) == ["natural", "pgd:num_steps=3,restarts=2", "apgd:num_steps=2"]
    assert results["natural"].accuracy == 1.0
    assert 0 < results["apgd:num_steps=2"].accuracy < 1
    for name, result in results.items():
        np.testing.assert_array_equal(result.flags, again[name].flags)


@pytest.mark.slow
def test_flags_are_those_of_the_attack_itself():
    """A key for each image: the key of the attack's name, and the image's index."""
    fixed = dict(epsilon=0.05, step_size=0.02, num_steps=3)
    named = NamedAttack("mine", functools.partial(attacks.pgd, **fixed))
    flags = run(suite=[named])["mine"].flags
    adversarial = attacks.pgd(Partial(linear, WEIGHTS), IMAGES, LABELS, KEY, **fixed)
    right = linear(WEIGHTS, adversarial).argmax(-1) == LABELS
    assert abs(flags.mean() - right.mean()) <= 0.05


def test_a_later_call_continues_in_the_folder_and_never_mixes_classifiers(tmp_path):
    calls = []

    def counting(logits_fn, images, labels, keys, *, epsilon=0.05):
        jax.debug.callback(lambda: calls.append(1))
        return images

    def count(logits_fn):
        del calls[:]
        result = run(logits_fn, [NamedAttack("mine", counting)], workdir=tmp_path)
        jax.effects_barrier()
        return result["mine"].accuracy, len(calls)

    assert count(Partial(linear, WEIGHTS)) == (1.0, 3)
    assert count(Partial(linear, WEIGHTS)) == (1.0, 0)
    accuracy, calls_made = count(Partial(linear, -WEIGHTS))
    assert calls_made == 3 and accuracy < 0.5


@pytest.mark.slow
def test_adversarial_images_are_returned_and_are_in_the_ball(tmp_path):
    for more in ({}, {"workdir": tmp_path}):
        result = run(keep_images=True, **more)["apgd:num_steps=2"]
        delta = np.abs(result.adversarial - np.asarray(IMAGES)).max()
        assert 0.04 < delta <= 0.05 + 1e-6
        right = linear(WEIGHTS, jnp.asarray(result.adversarial)).argmax(-1) == LABELS
        np.testing.assert_array_equal(right, result.flags)


def test_the_worst_case_of_each_image_is_that_of_all_members(tmp_path):
    """Each member attacks all images; two that fool different images leave what both leave."""

    def towards(logits_fn, images, labels, keys, *, epsilon=0.05, sign=1.0):
        return jnp.clip(images + sign * epsilon, 0, 1)

    members = [
        NamedAttack(name, functools.partial(towards, sign=sign))
        for name, sign in (("up", 1.0), ("down", -1.0))
    ]
    worst = NamedAttack("worst", None, worst_of=tuple(members))
    results = run(suite=[*members, worst], keep_images=True, workdir=tmp_path)
    up, down, both = (results[name] for name in ("up", "down", "worst"))
    np.testing.assert_array_equal(both.flags, up.flags & down.flags)
    assert both.flags.sum() < min(up.flags.sum(), down.flags.sum())
    assert up.num_attacked == down.num_attacked == len(IMAGES)
    right = linear(WEIGHTS, jnp.asarray(both.adversarial)).argmax(-1) == LABELS
    np.testing.assert_array_equal(right, both.flags)
    assert both.conditions["epsilon"] == 0.05 and len(both.conditions["attacks"]) == 2
    flags = {"natural": both.flags | True, "square": down.flags, "pgd20": up.flags}
    (finding,) = [
        f
        for f in checks.compare(flags | {"standard_individual": both.flags})
        if f.name == "gradient_attacks_suffice"
    ]
    assert finding.attacks == ("square", "pgd20"), "the worst case is no rival of its member"


@pytest.mark.slow
def test_standard_is_autoattack():
    names = list(run(suite="standard", num_queries=10))
    assert names == ["natural", "apgd_ce", "apgd_t", "fab_t", "standard_q10"]


def test_progress_shows_a_line_for_each_attack(capsys):
    run(suite="natural", progress=True)
    assert "natural: accuracy 100.00% (94.8 to 100.0) of 70 images" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, expected",
    [
        ("natural,square", ["natural", "square"]),
        ("pgd:num_steps=5,restarts=2,quick", ["pgd:num_steps=5,restarts=2", "quick"]),
        ("fgsm:epsilon=0.1", ["fgsm:epsilon=0.1"]),
    ],
)
def test_commas_between_arguments_end_no_word(words, expected):
    assert attack_words.words(words) == expected


def test_conditions_of_an_attack_with_arguments_are_the_arguments():
    config = digits.get_config()
    config.evaluation = "pgd:num_steps=50,restarts=10,epsilon=4/255,apgd:num_restarts=2"
    config.test.epsilon, config.test.step_size = "8/255", "2/255"
    config = settings.resolve(config)
    _, pgd, apgd = evaluation_attacks(config)
    assert pgd.conditions["num_steps"] == 50 and pgd.conditions["restarts"] == 10
    assert pgd.conditions["epsilon"] == 4 / 255
    assert pgd.conditions["step_size"] == pytest.approx(1 / 255)  # Its share of epsilon stays.
    assert (pgd.queries, apgd.queries) == (510, 203)
    assert apgd.conditions["restarts"] == 2


def test_an_attack_takes_its_norm_with_a_radius():
    words = ["pgd:norm=l2,epsilon=0.5,step_size=epsilon/4", "apgd:norm=l1,epsilon=12", "pgd"]
    _, *found = evaluation_attacks(config_in("linf", "8/255", ",".join(words)))
    balls = [(named.conditions["norm"], named.conditions["epsilon"]) for named in found]
    assert balls == [("l2", 0.5), ("l1", 12.0), ("linf", 8 / 255)]
    assert found[0].conditions["step_size"] == 0.125
    assert [labels.attack(named.conditions) for named in found] == [
        f"{words[0]} at L2 0.5",
        f"{words[1]} at L1 12",
        "pgd at 8/255",
    ]


def test_in_the_norm_of_the_tests_an_attack_has_their_radius():
    _, pgd, cw = evaluation_attacks(
        config_in("l2", "0.5", "pgd:norm=l2,cw_linf:norm=linf,epsilon=8/255")
    )
    assert (pgd.conditions["norm"], pgd.conditions["epsilon"]) == ("l2", 0.5)
    assert (cw.conditions["norm"], cw.conditions["epsilon"]) == ("linf", 8 / 255)
    with pytest.raises(UsageError, match="Set both: cw_linf:norm=linf,epsilon=8/255"):
        evaluation_attacks(config_in("l2", "0.5", "cw_linf"))


def config_in(norm, epsilon, evaluation):
    """A config with these attacks and this ball of the tests."""
    config = digits.get_config()
    config.evaluation = evaluation
    config.test.norm, config.test.epsilon, config.test.step_size = norm, epsilon, "epsilon/10"
    return settings.resolve(config)


@pytest.mark.parametrize(
    "suite, message",
    [
        ("pgd:steps=3", "unexpected keyword argument 'steps'"),
        ("pgd:num_steps=0", "num_steps=0; expected at least 1"),
        ("pgd:num_steps", "expected ARGUMENT=VALUE"),
        ("pgd:num_steps=5,num_steps=6", "num_steps twice in 'pgd:num_steps=5,num_steps=6'"),
        ("pgd20:num_steps=3", "available: fgsm, pgd, cw_linf"),
        ("pgd:epsilon=8", "for 8 of 255 grey levels write 8/255"),
        ("pgd:norm=l2", "Add a radius in l2, such as pgd:norm=l2,epsilon=0.5"),
        ("pgd:norm=l3,epsilon=1", "available: linf, l2, l1"),
        ("pgd:norm=l2,epsilon=500", "expected at most 100 in l2"),
        ("curve", "Evaluator.curve"),
        ("autoattack", "available: none, quick"),
    ],
)
def test_bad_words_are_refused_before_any_attack(suite, message):
    with pytest.raises(UsageError, match=message):
        run(suite=suite)


def test_bad_arrays_are_refused():
    with pytest.raises(UsageError, match="no images"):
        evaluate(Partial(linear, WEIGHTS), IMAGES[:0], LABELS[:0], KEY, epsilon=0.05)
    with pytest.raises(UsageError, match="expected \\[0, 1\\]"):
        evaluate(Partial(linear, WEIGHTS), IMAGES * 255, LABELS, KEY, epsilon=0.05)
    with pytest.raises(UsageError, match="epsilon"):
        run(epsilon=8)
