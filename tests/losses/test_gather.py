"""Value and every parameter's gradient on 2 and 4 gloo processes equal one process on the whole batch."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from latentlink import InvalidInput, InvalidType
from latentlink.losses import InfoNCELoss, NTXentLoss, WEINCELoss
from latentlink.losses.gather import DistributedLoss, gather_rows
from latentlink.losses.queue import Queue

WORKER = Path(__file__).with_name("gloo_worker.py")


def alone(sizes, labelled, jobs):
    """Do the jobs on one process with the whole batch."""
    spec = importlib.util.spec_from_file_location("gloo_worker", WORKER)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    return worker.run(0, [sum(sizes)], labelled, jobs)


def together(folder, sizes, labelled, jobs):
    """Do the jobs on one process for each of the sizes, and list what each found."""
    case = json.dumps({"sizes": sizes, "labelled": labelled, "jobs": jobs})
    command = [sys.executable, str(WORKER)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store"), str(folder / "out"), case],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(len(sizes))
    ]
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(sizes), "\n".join(errors)[-3000:]
    return [json.loads((folder / f"out{rank}.json").read_text()) for rank in range(len(sizes))]


def assert_equal(found, expected):
    assert list(found) == list(expected)
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, expected[name], rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("sizes", "labelled"),
    [([13, 7], False), ([5, 9, 0, 6], True), ([4, 0], True)],
    ids=["2 uneven", "4, one empty", "only one not empty"],
)
def test_processes_equal_one(tmp_path, sizes, labelled):
    expected = alone(sizes, labelled, ["losses"])
    for found in together(tmp_path, sizes, labelled, ["losses"]):
        assert_equal(found["losses"], expected["losses"])


@pytest.mark.medium
def test_texts_queue_and_culprit_on_two_processes(tmp_path):
    """The face for sentence-transformers inside DDP, an uneven last batch with different numbers of parts."""
    sizes, jobs = [11, 6], ["texts", "symmetric_texts", "queue"]
    (expected, _), pairs, queue = alone(sizes, False, jobs).values()
    first, second = together(tmp_path, sizes, False, [*jobs, "work", "culprit"])
    for found in (first, second):
        assert_equal(found["texts"][0], expected)
        assert_equal(found["symmetric_texts"], pairs)
        assert found["queue"] == queue  # one order everywhere, that of the ranks
        assert found["culprit"] == "row 1 of z1 on process 1 holds NaN; drop or mend it."
    parts = [found["work"]["local"] for found in (first, second)]
    assert parts[0] / parts[1] == pytest.approx(11 / 6, rel=0.1)  # each scores its own queries
    assert first["work"]["full"] == second["work"]["full"] > parts[0]
    assert sorted(queue["labels"]) == list(range(102, 117))  # the last 15 of two batches of 17
    own = {"c10d::allgather_": 2, "c10d::allreduce_": 2}  # sizes and rows; the value and their gradient
    for found in (first["texts"][1], second["texts"][1]):
        for case, messages in found.items():
            # DDP's own: its buffers once a call of the model, its gradients in one piece
            calls = int(case.split(", ")[1][0]) if case.endswith("None") else 1
            expected = {**own, "c10d::allreduce_": 3, "c10d::broadcast_": calls}
            assert messages == expected, case


def test_one_process_is_the_loss_itself():
    z0, z1 = torch.randn(2, 6, 3)
    assert torch.equal(DistributedLoss(NTXentLoss())(z0, z1), NTXentLoss()(z0, z1))
    assert gather_rows(z0) is z0


def test_errors():
    with pytest.raises(InvalidType, match=r"^loss is Linear; needs a loss of latentlink\.losses\.$"):
        DistributedLoss(torch.nn.Linear(1, 1))
    with pytest.raises(InvalidInput, match=r"^loss\.reduction is 'sum'; needs 'mean'\.$"):
        DistributedLoss(NTXentLoss(reduction="sum"))
    with pytest.raises(InvalidInput, match="a quantile of the whole batch; needs local=False, or a number"):
        DistributedLoss(WEINCELoss.released(), local=True)
    z = torch.randn(4, 3)
    with pytest.raises(
        InvalidInput, match=r"^negatives are given with layout 'nt_xent'; needs a one-way loss\.$"
    ):
        DistributedLoss(NTXentLoss())(z, z, negatives=z)
    hard = DistributedLoss(InfoNCELoss(in_batch=True))
    with pytest.raises(InvalidInput, match=r"^negative_labels is None; with negatives give labels of both"):
        hard(z, z, torch.arange(4), negatives=z)
    with pytest.raises(
        InvalidInput, match=r"^negative_labels is given without negatives; needs both, or neither\.$"
    ):
        hard(z, z, negative_labels=torch.arange(4))


def test_queue_wraps_without_losing_a_row():
    queue = Queue(5, 1)
    for start in range(0, 9, 3):
        ids = torch.arange(start, start + 3)
        queue.append(ids[:, None].float(), ids)
    assert sorted(queue.labels.tolist()) == [4, 5, 6, 7, 8]
    assert torch.equal(queue.rows[:, 0].long(), queue.labels)
    queue.append(torch.arange(20.0)[:, None], torch.arange(20))
    assert sorted(queue.labels.tolist()) == [15, 16, 17, 18, 19]
    with pytest.raises(InvalidInput, match=r"^labels has shape \(1,\); needs \(2,\)\.$"):
        queue.append(torch.ones(2, 1), torch.ones(1))
