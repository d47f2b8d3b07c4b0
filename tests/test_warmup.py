"""Adversarial training with a large radius: it stays at one class, and the named remedy works."""

import logging

import pytest

from cat_jax.cli import modes
from cat_jax.configs import digits
from cat_jax.storage import files

WARNING = "The classifier predicts one class for every image"


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_radius_that_grows_is_the_remedy_for_a_classifier_of_one_class(tmp_path, caplog):
    config = digits.get_config("at")
    config.threat.epsilon = "0.4"
    config.evaluation = "none"
    config.optimizer.drop_epochs = ()

    def train(name, num_epochs):
        config.num_epochs = num_epochs
        caplog.clear()
        with caplog.at_level(logging.WARNING, "cat_jax"):
            modes.train(config, tmp_path / name)
        lines = files.read_json_lines(tmp_path / name / "metrics.jsonl")
        return [line["validation_natural"] for line in lines if "validation_natural" in line]

    assert max(train("constant", 20)) < 0.2 and WARNING in caplog.text
    assert "--config.conventions=warmup" in caplog.text
    assert "config.attack.warmup_epochs" in caplog.text
    config.attack.warmup_epochs = 20.0
    assert train("growing", 40)[-1] > 0.5 and WARNING not in caplog.text
