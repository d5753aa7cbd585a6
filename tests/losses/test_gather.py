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
from latentlink.losses import NTXentLoss, WEINCELoss
from latentlink.losses.gather import DistributedLoss, gather_rows
from latentlink.losses.queue import Queue

WORKER = Path(__file__).with_name("gloo_worker.py")


def alone(sizes, labelled):
    spec = importlib.util.spec_from_file_location("gloo_worker", WORKER)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    return worker.run(0, 1, [sum(sizes)], labelled)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("sizes", "labelled"),
    [([13, 7], False), ([5, 9, 0, 6], True)],
    ids=["2 uneven", "4, one empty"],
)
def test_processes_equal_one(tmp_path, sizes, labelled):
    case = json.dumps({"sizes": sizes, "labelled": labelled})
    command = [sys.executable, str(WORKER)]
    jobs = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), str(tmp_path / "out"), case],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(len(sizes))
    ]
    errors = [job.communicate(timeout=120)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(sizes), "\n".join(errors)[-3000:]
    expected = alone(sizes, labelled)
    for rank in range(len(sizes)):
        found = json.loads((tmp_path / f"out{rank}.json").read_text())
        assert list(found) == list(expected)
        for name, numbers in found.items():
            np.testing.assert_allclose(numbers, expected[name], rtol=1e-8, atol=1e-10, err_msg=name)


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
        DistributedLoss(WEINCELoss.released())


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
