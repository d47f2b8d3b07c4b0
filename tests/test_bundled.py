"""The networks that come with cat_jax: listed, loaded by name, and as accurate as they state."""

import jax
import numpy as np
import pytest

from cat_jax import attacks, data, weights
from cat_jax.errors import UsageError
from cat_jax.weights import __main__, bundled

DESCRIPTIONS = dict(bundled.descriptions())
MAX_BYTES = 2e6


def test_the_list_has_each_network_and_its_card_states_the_file(capsys):
    assert __main__.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert bundled.names()
    for name in bundled.names():
        (line,) = [line for line in lines if line.startswith(f"| {name} ")]
        assert "standard " in line and "natural " in line
        file = bundled.FOLDER / f"{name}.safetensors"
        card = file.with_name(f"{file.name}.md").read_text()
        assert weights.load(name).digest in card and file.name in card
        assert file.stat().st_size <= MAX_BYTES


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith("digits") else pytest.mark.data)
        for name in bundled.names()
    ],
)
def test_the_accuracies_of_a_card_come_out_again(name, request):
    if not name.startswith("digits"):
        request.getfixturevalue("real_data")
    about = DESCRIPTIONS[name]
    results = {line["attack"]: line for line in about["results"] if line["subset"] == "all"}
    test = data.load(about["config"]["dataset"]).test
    chosen = data.balanced(test.labels, min(500, len(test.labels)), 0)
    images, labels = data.to_unit(test.images[chosen]), test.labels[chosen]
    logits_fn = weights.load(name).logits_fn
    natural, pgd20 = results["natural"], results["pgd20"]
    hyper = {"epsilon": pgd20["epsilon"], "step_size": pgd20["step_size"], "num_steps": 20}
    key = jax.random.key(0)
    adversarial = attacks.pgd(logits_fn, images, labels, key, random_start=False, **hyper)
    for line, batch in ((natural, images), (pgd20, adversarial)):
        accuracy = np.mean(logits_fn(batch).argmax(-1) == labels)
        # Of all test images, the part that was drawn: four standard deviations, or one image.
        part = len(chosen) / len(test.labels)
        spread = np.sqrt(line["accuracy"] * (1 - line["accuracy"]) / len(chosen) * (1 - part))
        assert abs(accuracy - line["accuracy"]) <= 4 * spread + 1 / len(chosen)


def test_a_name_that_is_neither_a_file_nor_a_network_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"digits_cat is neither a file of weights nor .*_cent"):
        weights.load("digits_cat")
    with pytest.raises(UsageError, match=r"There is no other.safetensors"):
        weights.load("other.safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits_cat_cent").mkdir()
    with pytest.raises(UsageError, match="digits_cat_cent is a folder"):
        weights.load("digits_cat_cent")
