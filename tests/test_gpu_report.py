"""launch/gpu_report.sh: verdicts on made-up numbers, and all of it at a small scale on the CPU."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def scripts(monkeypatch):
    """(gpu_report, gpu_stages, gpu_targets) of benchmarks/."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = ("gpu_report", "gpu_stages", "gpu_targets")
    return [importlib.import_module(name) for name in names]


def reached(**changes):
    """Stages of a GPU that reaches every target, and what differs from that."""
    speed = {"seconds_of_the_run": 600.0, "data_over_none": 1.01}
    benchmark = {"summary": speed, "compilations": 1, "memory": {}}
    planned = {"argument": 2e9, "output": 1e9, "alias": 1e9, "temp": 13e9, "peak": 15e9}
    run = {"epoch": 40.0, "num_epochs": 40, "seconds_of_steps": 30.0}
    passed = {"passed": 9, "skipped": 1, "failed": []}
    found = {
        "device": {"device": {"platform": "gpu", "kind": "H100", "count": 1}},
        "golden float32": passed,
        "golden float64": passed,
        "preact bfloat16": benchmark,
        "preact float32": benchmark,
        "mnist float32": benchmark,
        "mnist bfloat16": benchmark,
        "wrn bfloat16": benchmark | {"memory": planned},
        "wrn float32": benchmark,
        "train mnist": run,
        "train cifar10": {"seconds_of_all_epochs": 890.0, "steady_seconds": 30.0},
        "pgd": {"seconds": {"PGD-20": {"cat_jax": [1.0, 1.0], "peer": [1.6, 1.7]}}, "peer": "peer"},
    }
    found |= changes
    return {name: {"ended": "done", "seconds": 55.0, "found": one} for name, one in found.items()}


def test_each_target_passes_when_it_is_reached_and_fails_when_it_is_not(scripts):
    *_, targets = scripts
    whole = targets.verdicts(reached(), True)
    assert {line.verdict for line in whole} == {"pass"}
    slow = {"summary": {"seconds_of_the_run": 1e5, "data_over_none": 1.03}, "compilations": 2}
    slow["memory"] = {"argument": 2e9, "output": 1e9, "alias": 1e9, "temp": 15e9}
    bad = reached(
        **{name: slow for name in reached() if name.split()[0] in ("preact", "mnist", "wrn")},
        **{f"golden {dtype}": {"passed": 9, "failed": ["x"]} for dtype in ("float32", "float64")},
        **{"train cifar10": {"seconds_of_all_epochs": 901.0, "steady_seconds": 30.0}},
        **{"train mnist": {"epoch": 39.0, "num_epochs": 40, "seconds_of_steps": 1.0}},
        pgd={"seconds": {"PGD-20": {"cat_jax": [1.0], "peer": [1.4]}}, "peer": "peer"},
    )
    assert {line.verdict for line in targets.verdicts(bad, True)} == {"FAIL"}


def test_the_page_has_a_line_for_each_target_stage_and_benchmark(scripts):
    *_, targets = scripts
    stages = reached()
    start = {"total": 9.0, "compiling": 5.0}
    speeds = {"images_per_second": 8e3, "flops_per_second": 3e14, "share_of_peak": 0.4}
    for seconds, name in (
        ({"whole": [0.2]}, "wrn bfloat16"),
        ({"attack": [0.1]}, "preact float32"),
    ):
        summary = stages[name]["found"]["summary"] | speeds
        stages[name]["found"] |= {"start": start, "seconds": seconds, "summary": summary}
    for name in ("preact bfloat16", "mnist float32", "mnist bfloat16", "wrn float32"):
        stages[name] = {"ended": "failed: status 1 (no memory)", "found": None}
    lines = targets.verdicts(stages, True)
    report = {"scale": "full", "stages": stages, "targets": lines, "machine": "H100 here"}
    page = targets.markdown(report)
    assert all(f"| {line.what} | {line.target} |" in page for line in lines)
    assert all(f"| {name} | {stage['ended']} |" in page for name, stage in stages.items())
    assert "| wrn bfloat16 | 8000 | 300 | 40.0% | - | - | - | - | 200.00 | 9.0 | 5.0 |" in page
    assert "1 x H100" in page and "H100 here" in page


def test_what_was_not_measured_on_a_gpu_is_no_pass(scripts):
    *_, targets = scripts
    assert {line.verdict for line in targets.verdicts({}, True)} == {"not measured"}
    assert {line.verdict for line in targets.verdicts(reached(), False)} == {"small scale"}
    elsewhere = reached(device={"device": {"platform": "cpu", "kind": "cpu", "count": 1}})
    assert {line.verdict for line in targets.verdicts(elsewhere, True)} == {"no GPU"}
    cut = reached()
    cut["golden float32"]["ended"] = "stopped: its time was over"
    assert targets.verdicts(cut, True)[0].verdict == "unfinished"


def test_a_stage_that_fails_or_hangs_is_told_and_not_waited_for(scripts, tmp_path):
    report, stages, _ = scripts
    log, read = tmp_path / "log.txt", lambda: {"a": 1}
    failed = report.run(stages.Stage("a", 9, ["-c", "raise ValueError('why')"], read), 9, log)
    assert failed["ended"] == "failed: status 1 (ValueError: why)"
    assert failed["found"] == {"a": 1} and "ValueError: why" in log.read_text()
    sleeps = ["-c", "import time; time.sleep(60)"]
    missing = stages.Stage("b", 9, sleeps, lambda: stages.read_json(tmp_path / "none"))
    hangs = report.run(missing, 0.5, log)
    assert hangs["ended"].startswith("stopped: its time was over") and hangs["seconds"] < 20
    assert hangs["found"] is None and "none" in hangs["unread"]


def test_what_is_run_is_in_an_order_and_reads_the_given_data(scripts, monkeypatch):
    _, stages, _ = scripts
    monkeypatch.setenv("CAT_JAX_DATA", "/data/OUT")
    for scale in stages.SCALES.values():
        made = stages.stages(scale, pathlib.Path("/work"), pathlib.Path("/cifar"))
        assert set(made) <= set(stages.ORDER) and stages.ORDER[-1] in made
        for name, stage in made.items():
            uses_data = any(
                word.startswith(("cat_jax.main", "cat_jax.b")) for word in stage.command
            )
            assert ("--config.data_dir=/data/OUT" in stage.command) == uses_data
            assert not any("{out}" in word for word in stage.command), name


def test_the_steady_speed_is_that_of_the_last_half_minute(scripts, tmp_path):
    _, stages, _ = scripts
    speeds = [1.0, 50.0, 100.0, 100.0, 100.0]  # Images a second; a line is of 10 steps of 100.
    lines = [
        {"step": 10 * (i + 1), "epoch": 0.1 * (i + 1), "images_per_second": speed}
        for i, speed in enumerate(speeds)
    ]
    lines.insert(2, {"step": 20, "validation_natural": 0.5})
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "config.json").write_text('{"batch_size": 100, "num_epochs": 3}')
    found = stages.read_run(tmp_path)
    assert found["steady_seconds"] == 30 and found["images_per_second"] == pytest.approx(100)
    assert found["seconds_of_all_epochs"] == pytest.approx(3 * 100 * 100 / 100)
    assert found["seconds_of_steps"] == 1000 + 20 + 30


@pytest.mark.slow
def test_the_whole_report_at_a_small_scale(tmp_path):
    environment = os.environ | {"OUT": str(tmp_path / "out"), "PYTHON": sys.executable}
    environment |= {"RUNS": str(tmp_path / "runs")}
    command = [ROOT / "launch" / "gpu_report.sh", "--scale=small", "--seconds=600"]
    for name in ("XLA_FLAGS", "CAT_JAX_DATA"):
        environment.pop(name, None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    stages = report["stages"]
    ended = {name: stage["ended"] for name, stage in stages.items()}
    log = (tmp_path / "out" / "log.txt").read_text()
    assert ended.pop("pgd") in ("done", "left out: torch is not installed")
    assert ended.pop("train cifar10") == "stopped: its time was over", log
    assert set(ended.values()) == {"done"}, log
    assert stages["golden float32"]["found"]["passed"] > 0
    assert stages["evaluate mnist"]["found"]["last natural"] > 0.2
    assert stages["preact bfloat16"]["found"]["precision"] == "bfloat16"
    steps = stages["train cifar10"]["found"]["step"]
    saved = tmp_path / "runs" / "cifar10" / "checkpoints" / "last"
    assert steps > 0 and (saved / f"{steps:08d}" / "manifest.json").exists()
    files = {"report.json", "report.md", "log.txt"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    assert {line[3] for line in report["targets"]} == {"no GPU", "not measured"}
    page = (tmp_path / "out" / "report.md").read_text()
    assert "No GPU was found" in page and "| train mnist | done |" in page
