"""Config files that fail, and overrides that cannot be: whose fault it is, in one line."""

import pytest
from absl import flags
from ml_collections import config_flags

from cat_jax.cli import command_line
from cat_jax.configs import default

# How ml_collections imports a config file.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
FILE = """from cat_jax.configs import digits
def get_config(variant="cat_cent"):
    config = digits.get_config(variant)
    {}
    return config
"""


def read(*argv):
    """The config that a command line gives, as in a new process."""
    values = flags.FlagValues()
    known = dict(flag_values=values)
    config = config_flags.DEFINE_config_file("config", sys_argv=command_line.ARGUMENTS, **known)
    flags.DEFINE_string("workdir", None, "", **known)
    command_line.read(values, ["main", *map(str, argv)])
    return config.value


def refusal(capsys, *argv):
    """What a command line that is refused prints: the lines before the last one, and that one."""
    with pytest.raises(SystemExit) as ended:
        read(*argv)
    assert ended.value.code == 2
    output, errors = capsys.readouterr()
    assert output == ""
    *frames, line = errors.rstrip().split("\n")
    assert line.startswith("error: "), errors
    return "\n".join(frames), line.removeprefix("error: ")


@pytest.mark.parametrize(
    "code, line",
    [
        (
            'config.attack.epsilom = "0.1"',
            "AttributeError: there is no field epsilom; did you mean",
        ),
        (
            "config.seed = config.attack.kapa",
            "AttributeError: there is no field kapa; did you mean",
        ),
        (
            "config.frobnicate = 1",
            "AttributeError: there is no field frobnicate; all fields are in",
        ),
        ("import numpy; numpy.linspce(3)", "AttributeError: module 'numpy' has no attribute"),
        ("{}['a']", "KeyError: 'a'"),
        ('config.seed = "a"', "TypeError: Could not override field 'seed'"),
        ('open("/nowhere")', "FileNotFoundError: [Errno 2] No such file or directory"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_bug_in_a_config_file_is_shown_with_its_type_file_line_and_traceback(
    code, line, tmp_path, capsys
):
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("{}", code, 1))
    frames, last = refusal(capsys, f"--config={file}", "--config.seed=1")
    assert last.startswith(f"{file}, line 4: {line}"), last
    assert frames.startswith(f'  File "{file}", line 4, in get_config\n    {code}')
    assert "no such field" not in last


@pytest.mark.parametrize(
    "source, line",
    [
        ("def get_config(:", "line 1: SyntaxError: invalid syntax: def get_config(:"),
        ("def get_config():\n  return {}", "returned dict; expected a ConfigDict"),
        ("def get_config():\n  return None", "returned NoneType; expected a ConfigDict"),
        (FILE.replace("{}", "pass"), "Variant 'cat' is unknown; available: cat_cent"),
    ],
)
def test_a_file_that_gives_no_config_is_refused_in_one_line(source, line, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(source)
    variant = ":cat" if "variant" in source else ""
    frames, last = refusal(capsys, f"--config={file}{variant}")
    assert frames == "" and line in last


def test_a_variant_of_a_file_that_has_none_is_one_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n  pass")
    _, last = refusal(capsys, f"--config={file}:at")
    assert last == "get_config() takes 0 positional arguments but 1 was given"


@pytest.mark.parametrize(
    "override, line",
    [
        ("method.bta=1", "no field method.bta; did you mean method.beta?"),
        ("attack.epsilom=0.1", "no field attack.epsilom; did you mean attack.epsilon?"),
        ("epsilon=0.1", "The config has no field epsilon"),
        ("variant=trades", "config.variant is set by the config file; choose a variant"),
        ("batch_size=x", "invalid literal for int() with base 10: 'x'"),
    ],
)
def test_an_override_that_cannot_be_is_refused_by_the_field_that_was_meant(override, line, capsys):
    frames, last = refusal(capsys, "--config=cat_jax:digits", f"--config.{override}")
    assert frames == "" and line in last and "\\" not in last


def test_an_override_without_a_config_says_that_the_config_is_missing(tmp_path, capsys):
    _, last = refusal(capsys, "--config.seed=1")
    assert "--config.seed changes a field, but the command names no config; add --config" in last
    _, last = refusal(capsys, f"--workdir={tmp_path}", "--config.evaluation=quick")
    assert f"the command names no config, and {tmp_path} has no config.json" in last


def test_flag_files_are_read_before_the_config_is_looked_for(tmp_path, capsys):
    file = tmp_path / "flags"
    file.write_text(
        "--config=cat_jax:digits:at\n--config.seed=7\n--noconfig.classifier.normalize\n"
    )
    config = read(f"--flagfile={file}", "--config.threat.epsilon=4/255")
    assert (config.variant, config.seed, config.threat.epsilon) == ("at", 7, "4/255")
    assert not config.classifier.normalize
    _, last = refusal(capsys, "--flagfile=/nowhere/flags")
    assert "/nowhere/flags" in last


def test_a_config_of_ones_own_may_set_every_field_of_the_schema(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE.replace("{}", 'config.threat.epsilon, config.variant = "0.1", "mine"'))
    assert read(f"--config={file}:trades").variant == "mine"
    assert default.get_config().is_locked
