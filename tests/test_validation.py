"""What chooses the best checkpoint."""

from cat_jax.training import validation

SCORES = {
    "validation_natural": 0.8,
    "validation_robust": 0.5,
    "validation_natural_average": 0.7,
    "validation_robust_average": 0.55,
    "validation_fgsm": 0.6,
}


def test_the_sum_or_robust_accuracy_alone_of_the_classifier_and_of_its_average():
    assert dict(validation.totals(SCORES, "sum")) == {"": 1.3, "_average": 1.25}
    assert dict(validation.totals(SCORES, "robust")) == {"": 0.5, "_average": 0.55}
