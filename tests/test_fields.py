"""The table of fields: it has every field of the schema, and all that reads it agrees with it."""

import json
import pathlib
import re

import hypothesis
import pytest
from hypothesis import strategies as st
from ml_collections import ConfigDict

from cat_jax.attacks.balls import BALLS
from cat_jax.configs import default, digits, mnist
from cat_jax.errors import UsageError
from cat_jax.experiment import experiment, method, network, optimizer, run_config, settings
from cat_jax.experiment.conventions import CONVENTIONS, FIELDS_SET
from cat_jax.experiment.fields import BOTH, EVALUATION, FIELDS, TRAINING
from cat_jax.experiment.limits import NAME, RADIUS, START, radius_text, read_radius
from cat_jax.networks.inside import ACTIVATIONS
from cat_jax.networks.preact_resnet import SHORTCUTS
from cat_jax.networks.wide_resnet import HEADS
from cat_jax.step.train_step import PARALLEL
from cat_jax.storage.run_folder import RunFolder

SCHEMA = default.get_config()
DEFAULTS = settings.flat(SCHEMA)
# Choices that a table elsewhere has by its keys.
REGISTRIES = {
    "conventions": CONVENTIONS,
    "threat.norm": BALLS,
    "parallel": PARALLEL,
    "classifier.activation": ACTIVATIONS,
    "classifier.shortcut": SHORTCUTS,
    "classifier.head": HEADS,
    "augment": experiment.AUGMENTATIONS,
    "precision": network.PRECISIONS,
    "attack.loss": method.ATTACK_LOSSES,
    "optimizer.decay": optimizer.DECAYED,
}


def type_of(path):
    """The type of a field in the schema; fields without a default have one too."""
    *sections, name = path.split(".")
    config = SCHEMA
    for section in sections:
        config = config[section]
    return config.get_type(name)


def test_the_table_has_every_field_of_the_schema_and_no_other():
    assert FIELDS.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_has_the_type_of_its_default_and_accepts_it(path):
    limit = FIELDS[path].limit
    assert type_of(path) in limit.types
    if DEFAULTS[path] is not None:
        assert limit.check(path, DEFAULTS[path]) == DEFAULTS[path]


@pytest.mark.parametrize("path", [path for path in FIELDS if FIELDS[path].limit.choices])
def test_every_choice_is_explained_in_the_schema_or_its_table(path):
    source = pathlib.Path(default.__file__).read_text()
    for choice in FIELDS[path].limit.choices:
        assert f'"{choice}"' in source, f"{path}={choice}"


@pytest.mark.parametrize("path", REGISTRIES)
def test_choices_are_those_that_the_code_knows(path):
    assert set(FIELDS[path].limit.choices) == set(REGISTRIES[path])


def test_conventions_set_the_same_fields_for_every_recipe_and_only_fields_without_a_default():
    for recipes in CONVENTIONS.values():
        assert recipes.keys() == CONVENTIONS["paper"].keys()
        for table in recipes.values():
            assert table.keys() == set(FIELDS_SET)
            for path, value in table.items():
                assert DEFAULTS[path] is None, f"{path} would never be filled in"
                FIELDS[path].limit.check(path, value)


def value_of(path):
    """Values that a field accepts, in the schema's form."""
    limit, kind = FIELDS[path].limit, type_of(path)
    if limit.choices:
        return st.sampled_from(limit.choices)
    if limit in (RADIUS, START):
        texts = ("8/255", "0.1", "0.25", "1") + (("epsilon", "epsilon/4") if "." in path else ())
        return st.sampled_from(texts[:4] if path.endswith(".epsilon") else texts)
    if limit is NAME:
        return st.sampled_from(("a", "b"))
    values = {
        bool: st.booleans(),
        int: st.integers(0, 1000),
        float: st.integers(0, 1000).map(lambda n: n / 250),
        tuple: st.lists(st.integers(1, 1000), unique=True, max_size=3).map(sorted).map(tuple),
    }
    return values[kind].filter(limit.accepts)


CHANGES = st.lists(
    st.sampled_from(sorted(FIELDS)).flatmap(lambda path: st.tuples(st.just(path), value_of(path))),
    max_size=3,
).map(dict)
CONFIGS = st.sampled_from([digits.get_config, mnist.get_config])
PROPERTY = hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)


def resolved(get_config, *changes):
    config = get_config()
    for change in changes:
        config.update_from_flattened_dict(change)
    return settings.resolve(config)


@PROPERTY
@hypothesis.given(CONFIGS, CHANGES, CHANGES)
def test_a_fingerprint_differs_exactly_where_a_field_that_affects_its_kind_differs(
    get_config, shared, change
):
    left, right = resolved(get_config, shared), resolved(get_config, shared, change)
    old, new = settings.flat(left), settings.flat(right)
    differing = [FIELDS[path].affects for path in FIELDS if old[path] != new[path]]
    for affects in (EVALUATION, TRAINING, BOTH):
        same = settings.fingerprint(left, affects) == settings.fingerprint(right, affects)
        assert same == (not any(each & affects for each in differing)), (affects, change)


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_alone_changes_the_fingerprints_that_it_affects_and_no_other(path):
    values = settings.flat(resolved(digits.get_config))
    for affects in (EVALUATION, TRAINING):
        prints = {settings.fingerprint(values | {path: value}, affects) for value in "abc"}
        assert len(prints) == (3 if FIELDS[path].affects & affects else 1)


@PROPERTY
@hypothesis.given(CONFIGS, CHANGES)
def test_resolving_again_changes_nothing_and_a_workdir_gives_the_config_back(get_config, change):
    config = get_config()
    config.update_from_flattened_dict(change)
    once = settings.resolve(config)
    assert settings.resolve(once) == once
    content = settings.as_dict(once) | {"given": settings.given_values(config, once)}
    existing = run_config.from_json(json.loads(json.dumps(content)), "config.json")
    assert settings.resolve(existing) == once
    assert settings.flat(existing) == settings.flat(config)


@hypothesis.given(st.floats(0, 1) | st.integers(0, 255).map(lambda n: n / 255))
@hypothesis.settings(PROPERTY)
def test_a_radius_is_read_back_from_its_text(radius):
    assert read_radius("config.attack.epsilon", radius_text(radius), "linf") == radius


@pytest.mark.parametrize(
    "text, value", [("8/255", 8 / 255), ("0.0314", 0.0314), ("1", 1.0), ("2/5", 0.4)]
)
def test_radii_are_fractions_or_decimals(text, value):
    config = digits.get_config()
    config.threat.epsilon = text
    assert settings.resolve(config).attack.epsilon == value


@pytest.mark.parametrize("radius, text", [(8 / 255, "8/255"), (0.4, "0.4"), (0.031, "0.031")])
def test_radii_are_shown_as_people_write_them(radius, text):
    assert radius_text(radius) == text


def test_the_threat_model_is_followed_unless_a_section_has_its_own():
    config = digits.get_config()
    config.threat.epsilon = "4/255"
    values = settings.resolve(config)
    assert values.attack.epsilon == values.validation.epsilon == values.test.epsilon == 4 / 255
    assert values.attack.step_size == 4 / 255 / 5 and values.test.cw_epsilon == 4 / 255
    config.test.epsilon, config.threat.norm = "0.3", "l2"
    values = settings.resolve(config)
    assert (values.attack.epsilon, values.test.epsilon) == (4 / 255, 0.3)
    assert {values.attack.norm, values.validation.norm, values.test.norm} == {"l2"}
    assert settings.resolve(mnist.get_config()).attack.epsilon == 0.4
    assert settings.resolve(mnist.get_config()).test.epsilon == 0.3


@pytest.mark.parametrize(
    "path, value, expected",
    [
        ("keep_checkpoints", 0, "expected at least 1"),
        ("keep_checkpoints", -1, "expected at least 1"),
        ("optimizer.drop_epochs", (-5,), "expected epochs from 0 on in rising order"),
        ("optimizer.drop_epochs", (5, 3), "expected epochs from 0 on in rising order"),
        ("optimizer.drop_factors", (0.0,), "expected a tuple of numbers above 0"),
        ("classifier.std", (0.2, -0.1), "expected a tuple of numbers above 0"),
        ("method.beta", float("nan"), "expected at least 0"),
        ("optimizer.learning_rate", 1e30, "at most 2147483647"),
        ("optimizer.momentum", 1.0, "less than 1"),
        ("attack.step_size", "0", "expected a radius or a step size above 0"),
        ("test.epsilon", "0", "expected a radius or a step size above 0"),
        ("test.step_size", "epsilon/0", "expected a number such as 0.0314 or 8/255"),
        ("threat.epsilon", "8", "for 8 of 255 grey levels write 8/255"),
        ("test.save_adversarial", "float16", "available: none, float32, uint8"),
        ("seed", True, "expected at least 0"),
        ("test.num_checked", 1, "expected 0, or at least 2"),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_field(path, value, expected):
    config = digits.get_config()
    config.update_from_flattened_dict({path: value})
    with pytest.raises(UsageError, match=re.escape(expected)) as error:
        settings.resolve(config)
    assert str(error.value).startswith(f"config.{path} is ") and "\n" not in str(error.value)


def test_a_radius_in_l2_may_exceed_the_pixel_range():
    config = digits.get_config()
    config.threat.norm, config.threat.epsilon = "l2", "1.5"
    assert settings.resolve(config).attack.epsilon == 1.5
    config.threat.epsilon = "128"
    with pytest.raises(UsageError, match="expected at most 100 in l2"):
        settings.resolve(config)


def test_the_schema_is_locked_and_a_config_with_another_field_is_refused():
    config = digits.get_config()
    with pytest.raises(AttributeError, match="epsilom"):
        config.attack.epsilom = "0.1"
    with config.unlocked():
        config.attack.epsilom = "0.1"
    with pytest.raises(UsageError, match=r"no field attack.epsilom; did you mean attack.epsilon\?"):
        settings.resolve(config)
    with pytest.raises(UsageError, match=r"The config lacks config.attack.batch_norm; start"):
        settings.resolve(ConfigDict({"seed": 0}))


def test_the_conventions_of_training_are_given_field_by_field():
    conventions = settings.training_conventions(settings.resolve(mnist.get_config()))
    assert conventions["attack.clip"] is False and conventions["mask_net.sees"] == "sum"
    assert conventions["optimizer.drop_epochs"] == (31,)
    assert "test.cw_random_start" not in conventions, "that decides the evaluation"


FREE = {"log_every": 7, "test.epsilon": "0.2", "num_steps": 9, "num_epochs": 70, "remat": True}


@pytest.mark.parametrize("path", FREE)
def test_a_resumed_run_may_change_what_does_not_touch_the_steps_that_are_done(path):
    existing, config = resolved(digits.get_config), resolved(digits.get_config, {path: FREE[path]})
    run_config.refuse_other(RunFolder(pathlib.Path("run")), existing, config)


@pytest.mark.parametrize("schedule", ["cosine", "cyclic"])
def test_a_schedule_that_stretches_fixes_the_number_of_epochs(schedule):
    stretched = {"optimizer.schedule": schedule}
    existing = resolved(digits.get_config, stretched)
    longer = resolved(digits.get_config, stretched, {"num_epochs": 70})
    with pytest.raises(UsageError, match="num_epochs: 60 there, 70 now"):
        run_config.refuse_other(RunFolder(pathlib.Path("run")), existing, longer)


def test_another_config_is_refused_with_its_differences():
    existing = resolved(digits.get_config)
    other = resolved(digits.get_config, {"threat.epsilon": "8/255", "method.beta": 3.0})
    with pytest.raises(UsageError, match="run was created with a different config") as error:
        run_config.refuse_other(RunFolder(pathlib.Path("run")), existing, other)
    assert "attack.epsilon: 0.15 there, 8/255 now" in str(error.value)
    assert "method.beta: 2.0 there, 3.0 now" in str(error.value)
    assert "test.epsilon: " not in str(error.value)
    assert str(error.value).endswith("or set config.test.epsilon."), "to test at another radius"


def test_an_override_of_a_kept_config_still_moves_what_follows_it():
    """config.json has what was given: 'epsilon/10' is a part of the new epsilon."""
    config = digits.get_config()
    content = settings.as_dict(settings.resolve(config))
    content |= {"given": settings.given_values(config, settings.resolve(config))}
    existing = run_config.from_json(json.loads(json.dumps(content)), "config.json")
    existing.test.epsilon = "0.05"
    values = settings.resolve(existing).test
    assert (values.epsilon, values.cw_epsilon, values.step_size) == (0.05, 0.05, 0.005)


def test_a_config_of_another_version_is_refused_by_the_field_that_is_not_known():
    content = settings.as_dict(resolved(digits.get_config))
    content["attack"]["min_epsilon"] = "0.005"
    with pytest.raises(UsageError, match=r"config.json has the field attack.min_epsilon, which"):
        run_config.from_json(content, "config.json")
