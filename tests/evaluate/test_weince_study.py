"""The study's script and its report, on made-up runs: what is planned, packed, compared and written."""

import hashlib
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("weince_study"), importlib.import_module("weince_report")
    for name in ("weince_study", "weince_report"):
        sys.modules.pop(name, None)


def test_the_plan_goes_seed_by_seed_and_tunes_before_it_judges(scripts, tmp_path):
    study, _ = scripts
    plan = study.configuration()
    jobs = study.jobs(tmp_path)
    assert len({job.name for job in jobs}) == len(jobs)
    assert [job.seed for job in jobs if not job.tuning] == sorted(job.seed for job in jobs if not job.tuning)
    tuning = [job for job in jobs if job.tuning]
    assert {job.seed for job in tuning} == {plan["tuning_seed"]}
    assert plan["tuning_seed"] not in plan["seeds"]
    for job in tuning:
        score = 0.9 if job.temperature == 0.2 else 0.1
        (tmp_path / f"{job.name}.json").write_text(json.dumps({"validation": score}))
    assert study.chosen_temperature(plan, "cifar100", "infonce", tmp_path) == 0.2
    assert study.Job("cifar100", "infonce", 0.2, 3, False) in study.jobs(tmp_path)
    later = study.further_jobs()
    assert [job.seed for job in later] == sorted(job.seed for job in later)
    assert not set(later) & set(study.jobs(tmp_path))


def test_hits_survive_packing(scripts, rng):
    study, _ = scripts
    hits = rng.integers(0, 2, 101).astype(float)
    assert np.array_equal(study.unpacked(study.packed(hits), 101), hits)


def test_the_report_names_a_difference_that_was_put_in(scripts, tmp_path, monkeypatch, rng):
    study, report = scripts
    digest = hashlib.sha256(study.CONFIGURATION.read_bytes()).hexdigest()
    history = {
        name: {"0": 0.1, "30": 0.1}
        for name in ["loss", "blend", *(f"gradient_decile_{i}" for i in range(1, 11))]
    }
    hard = rng.uniform(size=2000)
    for method, level in [("infonce", 0.6), ("weince", 0.7), ("weince-paper", 0.6)]:
        for seed in range(3):
            hits = (hard + 0.1 * rng.normal(size=2000) < level).astype(float)
            job = study.Job("fashion", method, 0.5, seed, False)
            record = {
                **vars(job),
                "configuration": digest,
                "metrics": {"probe": hits.mean()},
                "items": {"n": 2000, "probe": study.packed(hits), "knn": study.packed(hits)},
                "history": history,
            }
            (tmp_path / f"{job.name}.json").write_text(json.dumps(record))
    page = tmp_path / "page" / "weince.md"
    monkeypatch.setattr(report, "FURTHER", {"fashion": [("infonce", 0.5, None)]})
    monkeypatch.setattr(sys, "argv", ["weince_report.py", "--results", str(tmp_path), "--page", str(page)])
    report.main()
    text = page.read_text()
    rows = {
        line.split("|")[1].strip(): line for line in text.splitlines() if line[:2] == "| " and " − " in line
    }
    assert rows["weince − infonce, both at 0.5"].endswith("| better |")
    assert "better" not in rows["weince-paper − infonce, both at 0.5"]
    assert rows["gate: regression − likelihood (exponent estimated)"].endswith("| worse |")
    assert "weince − infonce, both at 0.5: +" in text.split("## Rules")[0]
    assert (page.parent / "weince_fashion.png").exists()
    assert (page.parent / "weince_fashion_gradient.png").exists()
    assert "not planned" in text.split("## fashion")[1].split("## sts")[0]
    assert "No run yet." in text
    (tmp_path / "x.json").write_text(json.dumps({**record, "configuration": "other"}))
    with pytest.raises(SystemExit, match=r"^x\.json was run under another configuration"):
        report.main()
