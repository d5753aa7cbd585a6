"""One process of a gloo group: computes a case and writes its value and parameter gradients."""

import json
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from latentlink.losses import InfoNCELoss, LogitScale, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss
from latentlink.losses.gather import DistributedLoss

LOSSES = {
    "nt_xent": lambda tau: NTXentLoss(tau),
    "one_way": lambda tau: InfoNCELoss(tau),
    "symmetric": lambda tau: SymmetricInfoNCELoss(tau),
    "weince": lambda tau: WEINCELoss(tau, pivot=0.5, margin=-5.0),
    "weince_symmetric": lambda tau: WEINCELoss(tau, layout="symmetric", pivot=0.5, margin=-5.0),
    "released": lambda tau: WEINCELoss.released(tau),
}


def run(rank, world, sizes, labelled):
    """Compute value and DDP-averaged gradients of every loss, on this rank's rows of one fixed batch."""
    torch.manual_seed(0)
    n = sum(sizes)
    x, y = torch.randn(2, n, 6, dtype=torch.float64)
    labels = torch.arange(n) % (n - 2) if labelled else None
    start = sum(sizes[:rank])
    mine = slice(start, start + sizes[rank])
    found = {}
    for name, local in [
        (name, local) for name in LOSSES for local in (True, False) if not (local and name == "released")
    ]:
        torch.manual_seed(1)
        model = torch.nn.Linear(6, 5).double()
        tau = LogitScale(0.2).double()
        loss = DistributedLoss(LOSSES[name](tau), local=local)
        ids = None if labels is None else labels[mine]
        value = loss(model(x[mine]), model(y[mine]), ids)
        value.backward()
        gradients = [p.grad for p in (*model.parameters(), tau.log_scale)]
        for g in gradients:
            if world > 1:  # what DDP does
                dist.all_reduce(g)
                g /= world
        found[f"{name}, {'local' if local else 'full'}"] = [
            value.item(),
            *torch.cat([g.reshape(-1) for g in gradients]).tolist(),
        ]
    return found


if __name__ == "__main__":
    rank, store, out, case = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    world = len(case["sizes"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    result = run(rank, world, case["sizes"], case["labelled"])
    with open(f"{out}{rank}.json", "w", encoding="utf-8") as stream:
        json.dump(result, stream)
    dist.destroy_process_group()
