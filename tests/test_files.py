"""Files are complete or as they were."""

import argparse
import ast
import importlib
import json
import math
import pathlib

import jax.numpy as jnp
import pytest

from cat_jax import errors
from cat_jax.report import plots
from cat_jax.storage import files, lines, metrics
from cat_jax.storage.run_folder import RunFolder

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("cat_jax", "benchmarks", "configs", "notebooks", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "json.dump" in path.read_text()
]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "a" / "results.jsonl"
    files.write_json_lines(file, [{"a": 1}])
    with pytest.raises(RuntimeError), files.replacing(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert files.read_json_lines(file) == [{"a": 1}]
    assert list(file.parent.iterdir()) == [file]


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    files.check_writable_file(tmp_path / "new" / "x.json", "--out")
    assert list(tmp_path.iterdir()) == [], "it makes nothing"
    with pytest.raises(errors.UsageError, match=f"--out is {tmp_path}, which is a folder"):
        files.check_writable_file(tmp_path, "--out")
    with pytest.raises(
        errors.UsageError, match=r"--out is /proc/no, where files cannot be written"
    ):
        files.check_writable_file(pathlib.Path("/proc/no/x.json"), "--out")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=importlib.import_module("timing").output_file)
    with pytest.raises(SystemExit):
        parser.parse_args(["--out=/proc/no/x.json"])
    assert "where files cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem)
def test_every_benchmark_checks_its_output_first(script):
    """Each of them measures for minutes."""
    source = script.read_text()
    assert ('"--out"' in source) == ("type=timing.output_file" in source) or script.stem == "timing"


def test_a_half_written_last_line_is_dropped(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert files.read_json_lines(file) == [{"step": 1}, {"step": 2}]
    assert files.read_json_lines(tmp_path / "absent") == []


def test_a_line_that_does_not_fit_its_checksum_is_refused_by_its_number(tmp_path):
    file = tmp_path / "results.jsonl"
    records = [{"accuracy": 0.5, "loss": math.nan, "name": "\u03b8"}, {"accuracy": 0.25}]
    files.write_json_lines(file, records)
    lines = file.read_text().splitlines(keepends=True)
    assert [strict_json(line)["accuracy"] for line in lines] == [0.5, 0.25]
    found = files.read_json_lines(file)
    assert found[1] == records[1], "without the checksum"
    files.write_json_lines(file, found)
    assert file.read_text() == "".join(lines), "a note on numbers that are not finite stays"
    file.write_text(lines[0] + lines[1].replace("0.25", "0.75"))
    with pytest.raises(
        errors.Damaged, match=r"results.jsonl is damaged in line 2; restore it .* delete"
    ):
        files.read_json_lines(file)
    file.write_text('{"accuracy": 0.75}\n')
    assert files.read_json_lines(file) == [{"accuracy": 0.75}], "of another program"


def test_every_bit_of_a_line_is_checked(tmp_path):
    file = tmp_path / "results.jsonl"
    files.write_json_lines(file, [{"attacked": {"seed": 0}, "outcome": {"accuracy": 0.5}}])
    sound = file.read_bytes()
    for place in range(sound.index(b', "sum"')):
        for bit in range(8):
            harmed = bytearray(sound)
            harmed[place] ^= 1 << bit
            file.write_bytes(harmed)
            with pytest.raises(errors.Damaged):
                files.read_json_lines(file)


def test_json_has_null_and_a_note_for_numbers_that_are_not_finite():
    record = {"step": 3, "loss": math.nan, "inner": {"x": -math.inf, "y": (1.0, math.inf)}}
    text = files.json_text(record)
    assert strict_json(text) == {
        "step": 3,
        "loss": None,
        "inner": {"x": None, "y": [1.0, None]},
        "non_finite": {"loss": "nan", "inner.x": "-inf", "inner.y.1": "inf"},
    }
    assert files.json_text({"a": 1.5}) == '{"a": 1.5}\n'


def strict_json(text):
    """As other programs read it: NaN and Infinity are no JSON."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_writes_json_with_nan(path):
    """Every call refuses NaN; `files.json_text` writes null in its place."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("json.dump", "json.dumps"):
            assert "allow_nan=False" in [ast.unparse(word) for word in call.keywords], call.lineno


def test_a_log_that_resumes_drops_the_lines_beyond_its_step(tmp_path):
    for start, stop in [(0, 3), (2, 4)]:
        log = metrics.MetricsLog(RunFolder(tmp_path), start)
        for step in range(start + 1, stop + 1):
            log.add(step, {"loss": jnp.float32(step)})
            log.flush(1)
        log.close()
    lines = files.read_json_lines(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in lines] == [(s, s) for s in (1, 2, 3, 4)]


def test_a_line_holds_the_mean_since_the_last_one(tmp_path):
    log = metrics.MetricsLog(RunFolder(tmp_path), 0)
    for step in (1, 2, 3):
        log.add(step, {"loss": jnp.float32(step)})
    assert log.flush(10, epoch=0.5)["loss"] == 2.0
    assert log.flush(10) == {}, "nothing is written twice"
    (line,) = files.read_json_lines(tmp_path / "metrics.jsonl")
    log.close()
    assert (line["step"], line["epoch"]) == (3, 0.5) and line["images_per_second"] > 0


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_the_first_step_that_is_not_finite_is_named(tmp_path, bad):
    log = metrics.MetricsLog(RunFolder(tmp_path), 0)
    for step in (1, 2, 3):
        log.add(step, {"loss": jnp.float32(bad if step > 1 else 0)})
    with pytest.raises(errors.NonFiniteLoss, match=f"loss is {bad} at step 2"):
        log.flush(1, epoch=0.5)
    log.close()
    (text,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    line = {"step": 2, "loss": None, "epoch": 0.5, "non_finite": {"loss": bad}}
    assert strict_json(text).items() > line.items()
    assert files.read_json_lines(tmp_path / "metrics.jsonl") == [line]
    assert lines.first_non_finite([{"step": 1, "loss": 0.5}, line]) == f"loss is {bad} at step 2"
    assert plots.curve([{"step": 1, "epoch": 0.2, "loss": 0.5}, line], "loss") == [(0.2, 0.5)]
