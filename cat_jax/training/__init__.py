"""The training loop and its validations."""
