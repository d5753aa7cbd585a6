"""Does WEINCE help? Tables, verdicts and figures from the runs of weince_study.py that are there.

python benchmarks/weince_report.py                 # writes docs/results/weince.md and its figures
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from weince_study import (
    CONFIGURATION,
    HERE,
    RESULTS,
    chosen_temperature,
    configuration,
    methods,
    tuned,
    unpacked,
)

from latentlink.evaluate import holm, paired_difference, spearman_pseudo_values
from latentlink.report.training_plots import draw_deciles, draw_differences

PAGE = HERE.parent / "docs" / "results" / "weince.md"
Runs = dict[tuple[str, str, float], dict[int, dict[str, Any]]]


def load(results: Path) -> Runs:
    """Read the runs: {(task, method, temperature): {seed: record}}; tuning runs are left out."""
    found: Runs = {}
    digest = hashlib.sha256(CONFIGURATION.read_bytes()).hexdigest()
    for path in sorted(results.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["configuration"] != digest:
            raise SystemExit(f"{path.name} was run under another configuration; remove it or restore that one")
        if not record["tuning"]:
            key = (record["task"], record["method"], record["temperature"])
            found.setdefault(key, {})[record["seed"]] = record
    return found


def values(record: dict[str, Any], metric: str, data: Path) -> np.ndarray:
    """Give a run's value for each test item: hits, or pseudo-values of the rank correlation."""
    if metric != "spearman":
        return unpacked(record["items"][metric], record["items"]["n"])
    from weince_study import sentence_pairs

    return spearman_pseudo_values(record["items"]["cosines"], np.array(sentence_pairs(data, "test")[2]))


def contrasts(plan: dict[str, Any], task: str, runs: Runs, results: Path) -> list[tuple[str, Any, Any]]:
    """List (name, key of the method, key of its rival) of a task."""
    base = plan["tasks"][task]["temperature"]
    rival = (task, "infonce", base)
    found = [
        (f"{method} − infonce, both at {base:g}", (task, method, base), rival)
        for method in methods(plan, task)
        if method not in ("infonce", "untrained")
    ]
    chosen = {method: chosen_temperature(plan, task, method, results) for method in tuned(plan, task)}
    if chosen["infonce"] is not None:
        for method in tuned(plan, task)[1:]:
            if chosen[method] is not None:
                name = f"{method} at {chosen[method]:g} − infonce at {chosen['infonce']:g}, both tuned"
                found.append((name, (task, method, chosen[method]), (task, "infonce", chosen["infonce"])))
    return [entry for entry in found if entry[1] in runs and entry[2] in runs]


def task_section(
    plan: dict[str, Any], task: str, runs: Runs, results: Path, data: Path, figures: Path
) -> list[str]:
    """Write the tables and the figures of one task."""
    fixed = plan["tasks"][task]
    metric, margin = fixed["metric"], fixed["margin"]
    lines = [f"## {task}", "", fixed["data"], ""]
    mine = {key: seeds for key, seeds in runs.items() if key[0] == task}
    if not mine:
        return [*lines, "No run yet.", ""]
    names = sorted({name for seeds in mine.values() for record in seeds.values() for name in record["metrics"]})
    lines += [f"| method | temperature | seeds | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for (_, method, temperature), seeds in sorted(mine.items(), key=lambda item: (item[0][2], item[0][1])):
        cells = []
        for name in names:
            column = np.array([record["metrics"][name] for record in seeds.values()])
            spread = f" ± {100 * column.std(ddof=1):.2f}" if len(column) > 1 else ""
            cells.append(f"{100 * column.mean():.2f}{spread}")
        lines.append(f"| {method} | {temperature:g} | {len(seeds)} | {' | '.join(cells)} |")
    lines += ["", "Mean and standard deviation over seeds, times 100.", ""]
    rows, verdicts = [], []
    for name, first, second in contrasts(plan, task, runs, results):
        seeds = sorted(mine[first].keys() & mine[second].keys())
        if len(seeds) < 2:
            continue
        a, b = ([values(mine[key][seed], metric, data) for seed in seeds] for key in (first, second))
        difference = paired_difference(np.stack(a), np.stack(b))
        verdict = difference.verdict(margin)
        rows.append((name, *(100 * x for x in (difference.effect, *verdict.interval))))
        verdicts.append((len(seeds), verdict, difference.p_value()))
    if rows:
        adjusted = holm([p for _, _, p in verdicts])
        lines += [
            f"| contrast ({metric}, points) | seeds | difference | 95 % interval | p, Holm | verdict |",
            "|---" * 6 + "|",
        ]
        for (name, effect, low, high), (n, verdict, _), p in zip(rows, verdicts, adjusted, strict=True):
            word = (
                verdict.word
                if verdict.word in ("equivalent", "undecided") or p < 0.05
                else "undecided after Holm"
            )
            lines.append(f"| {name} | {n} | {effect:+.2f} | {low:+.2f} to {high:+.2f} | {p:.3g} | {word} |")
        draw_differences(rows, margin=100 * margin, unit=f"{metric}, points").savefig(
            figures / f"weince_{task}.png", dpi=150
        )
        lines += ["", f"![differences](weince_{task}.png)", ""]
    base = {
        method: mine[task, method, fixed["temperature"]]
        for method in methods(plan, task)
        if (task, method, fixed["temperature"]) in mine
    }
    histories = {
        method: numbered(next(iter(seeds.values()))["history"])
        for method, seeds in base.items()
        if method != "untrained"
    }
    if histories:
        draw_deciles(histories).savefig(figures / f"weince_{task}_gradient.png", dpi=150)
        lines += [f"![where the gradient goes](weince_{task}_gradient.png)", ""]
        lines += gate_table(histories)
    return lines


def numbered(history: dict[str, dict[str, float]]) -> dict[str, dict[int, float]]:
    """Turn JSON's keys back into steps."""
    return {name: {int(step): value for step, value in steps.items()} for name, steps in history.items()}


def gate_table(histories: dict[str, dict[str, dict[int, float]]]) -> list[str]:
    """Write what the gate did in the second half of a run, and the gradient's share of the most similar tenth."""
    names = [
        "gap",
        "beta",
        "evidence",
        "blend",
        "share_blended",
        "beta_pooled",
        "effective_rank",
        "gradient_decile_10",
    ]
    lines = [f"| second half of the first seed | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for method, history in histories.items():
        cells = []
        for name in names:
            steps = list(history.get(name, {}).values())
            cells.append(f"{np.mean(steps[len(steps) // 2 :]):.3g}" if steps else "–")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    arguments = parser.parse_args()
    plan, runs = configuration(), load(arguments.results)
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Does WEINCE help?",
        "",
        "Written by `benchmarks/weince_report.py`; the configuration was fixed before the runs",
        "(`benchmarks/weince_study.json`). Rules:",
        "",
    ]
    lines += [f"- {rule}" for rule in plan["rules"]]
    lines += [f"- {method}: {words}" for method, words in plan["methods"].items()]
    lines.append("")
    for task in plan["tasks"]:
        lines += task_section(plan, task, runs, arguments.results, arguments.data, arguments.page.parent)
    arguments.page.write_text("\n".join(lines), encoding="utf-8")
    print(arguments.page)


if __name__ == "__main__":
    main()
