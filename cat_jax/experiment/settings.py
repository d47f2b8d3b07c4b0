"""Resolves a config, so that every field is set and valid; fingerprints of resolved configs."""

import difflib
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cat_jax.configs import default
from cat_jax.errors import UsageError
from cat_jax.experiment import conventions
from cat_jax.experiment.fields import BOTH, FIELDS, TRAINING, Affects
from cat_jax.experiment.limits import RADIUS, START, radius_text, read_radius

FOLLOWERS = ("attack", "validation", "test")  # Sections that follow `config.threat`.
SCHEMA = pathlib.Path(default.__file__)


def resolve(config: ConfigDict) -> ConfigDict:
    """A copy in which every field is set and valid, and every radius is a number.

    Resolving a resolved config changes nothing.

    Raises:
      UsageError: for an unknown field, and for a value that a field does not accept.
    """
    values = flat(config.copy_and_resolve_references())
    refuse_unknown(values)
    for path in ("conventions", "recipe", "threat.norm"):
        FIELDS[path].limit.check(path, values[path])
    table = conventions.CONVENTIONS[values["conventions"]][values["recipe"]]
    followed = table | {
        f"{section}.{name}": values[f"threat.{name}"]
        for section in FOLLOWERS
        for name in ("norm", "epsilon")
    }
    values |= {path: value for path, value in followed.items() if values[path] is None}
    for path, value in values.items():
        FIELDS[path].limit.check(path, value)
    values |= _radii(values)
    values["variant"] = _variant(values)
    resolved = ConfigDict(_nested(values))
    resolved.lock()
    return resolved


def _radii(values: Mapping[str, Any]) -> dict[str, Any]:
    """The radii and step sizes as numbers.

    Each may be a part of its section's epsilon, and that one of the threat model's.
    """
    threat = _radius(values, "threat.epsilon")
    epsilons = {"threat": threat} | {
        section: _radius(values, f"{section}.epsilon", threat) for section in FOLLOWERS
    }
    paths = [path for path in FIELDS if FIELDS[path].limit in (RADIUS, START)]
    parts = [path for path in paths if not path.endswith(".epsilon")]
    return {f"{section}.epsilon": epsilon for section, epsilon in epsilons.items()} | {
        path: _radius(values, path, epsilons[path.partition(".")[0]]) for path in parts
    }


def _radius(values: Mapping[str, Any], path: str, epsilon: float | None = None) -> float:
    section, limit = path.partition(".")[0], FIELDS[path].limit
    radius = read_radius(f"config.{path}", values[path], values[f"{section}.norm"], epsilon)
    if limit is RADIUS and not radius > 0:
        raise UsageError(f"config.{path} is {values[path]}; {limit.expected}.")
    return radius


def _variant(values: Mapping[str, Any]) -> str:
    """The name of the variant; if the config has another method, the name of that method."""
    variant, method = values["variant"], values["method.name"]
    if variant not in default.VARIANTS:
        return str(variant)
    if default.VARIANTS[variant].get("method.name", "cat") == method:
        return str(variant)
    return f"{variant}_{method}" if method in default.VARIANTS else str(method)


def refuse_unknown(values: Mapping[str, Any]) -> None:
    """Raises UsageError unless the fields of a config, by their paths, are those of the schema."""
    for path in sorted(values.keys() - FIELDS.keys()):
        raise UsageError(unknown_field(path))
    for path in sorted(FIELDS.keys() - values.keys()):
        raise UsageError(
            f"The config lacks config.{path}; start from cat_jax.configs.default.get_config()."
        )


def unknown_field(path: str) -> str:
    """The error for a path that is no field: it suggests a field, and names the file with all.

    Args:
      path: path of the field, or its name alone if its section is unknown.
    """
    names = {name: name for name in FIELDS} | {
        name.rpartition(".")[2]: name for name in FIELDS if "." not in path
    }
    close = difflib.get_close_matches(path, names, 1)
    section = path.rpartition(".")[0]
    if not close and section:
        siblings = [name for name in FIELDS if name.rpartition(".")[0] == section]
        close = difflib.get_close_matches(path, siblings, 1, 0)
    hint = f"; did you mean {names[close[0]]}?" if close else "."
    return f"The config has no field {path}{hint} All fields are in {SCHEMA}."


def chosen_fields(
    section: ConfigDict | Mapping[str, Any], name: str, fields: Sequence[str]
) -> dict[str, Any]:
    """The fields of a section that a record names.

    Args:
      section: section of a resolved config, such as config.test.
      name: name of the section, such as "test".
      fields: names of fields in the section.

    Raises:
      UsageError: for an unknown field.
    """
    for field in fields:
        if f"{name}.{field}" not in FIELDS:
            raise UsageError(unknown_field(f"{name}.{field}"))
    return {field: section[field] for field in fields}


def derived_field(path: str) -> str:
    """The error for setting a field that only config files may set."""
    return (
        f"config.{path} is set by the config file; choose a variant by its name there: "
        "--config=FILE:VARIANT."
    )


def fingerprint(config: ConfigDict | Mapping[str, Any], affects: Affects = BOTH) -> str:
    """Twelve hexadecimal digits of a SHA-256 of the fields that affect training or evaluation.

    Args:
      config: a resolved config, as a ConfigDict or as in config.json.
      affects: TRAINING, EVALUATION or both; fields that affect neither do not count.
    """
    values = flat(config)
    refuse_unknown(values)
    deciding = {path: values[path] for path in FIELDS if FIELDS[path].affects & affects}
    text = json.dumps(deciding, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def training_conventions(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """The fields of training on which the paper and the published code differ, by their paths.

    Args:
      config: a resolved config, as a ConfigDict or as in config.json.
    """
    values = flat(config)
    return {
        path: values[path] for path in conventions.FIELDS_SET if FIELDS[path].affects & TRAINING
    }


def selection(config: ConfigDict) -> str:
    """The split that chooses best/: "validation" or "test"; "none" if best/ is last/."""
    return str(config.selection) if config.num_validation or config.selection == "test" else "none"


def flat(config: ConfigDict | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"attack": {"kappa": x}} as {"attack.kappa": x}; lists as tuples."""
    values: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict | Mapping):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = tuple(value) if isinstance(value, list) else value
    return values


def given_values(config: ConfigDict, resolved: ConfigDict) -> dict[str, Any]:
    """The fields that `resolve` changed, by their paths, with their values before it."""
    values = flat(resolved)
    return {path: value for path, value in flat(config).items() if value != values[path]}


def shown(path: str, value: Any) -> str:
    """A value of a resolved config as text, radii as "0.3" or "8/255"."""
    return radius_text(value) if FIELDS[path].limit in (RADIUS, START) else repr(value)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return nested


def as_dict(config: ConfigDict) -> dict[str, Any]:
    """The config as plain JSON values: tuples become lists."""
    plain: dict[str, Any] = json.loads(config.to_json())
    return plain
