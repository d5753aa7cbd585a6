"""One process of a gloo group: computes cases and writes values, parameter gradients and counts of messages."""

import json
import sys
from collections import Counter
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from latentlink import InvalidInput
from latentlink.integrations import sentence_transformers as st
from latentlink.losses import InfoNCELoss, LogitScale, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss
from latentlink.losses.gather import DistributedLoss, gather_rows
from latentlink.losses.queue import Queue

OPEN = {"pivot": 0.5, "margin": -5.0}
LOSSES = {
    "nt_xent": lambda tau: NTXentLoss(tau),
    "one_way": lambda tau: InfoNCELoss(tau),
    "symmetric": lambda tau: SymmetricInfoNCELoss(tau),
    "weince": lambda tau: WEINCELoss(tau, **OPEN),
    "weince_symmetric": lambda tau: WEINCELoss(tau, layout="symmetric", **OPEN),
    "released": lambda tau: WEINCELoss.released(tau),
}
IN_BATCH = {"layout": "one_way", "options": {"in_batch": True}}
WITH_NEGATIVES = {
    "in the batch and hard": lambda tau: InfoNCELoss(tau, in_batch=True),
    "hard alone": lambda tau: InfoNCELoss(tau),
    "weince, in the batch and hard": lambda tau: WEINCELoss(tau, **IN_BATCH, **OPEN),
    "released, in the batch and hard": lambda tau: WEINCELoss.released(tau, **IN_BATCH),
}
TEXTS = [  # which loss, columns, texts encoded at a time
    ("plain", 2, None),
    ("plain", 4, None),
    ("plain", 2, 4),
    ("plain", 3, 3),
    ("weince", 3, None),
    ("weince", 3, 3),
]


class Texts(torch.nn.Module):
    """What sentence-transformers calls a model, with a buffer, which DDP sends at each call."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5))
        self.register_buffer("positions", torch.arange(4.0))

    def forward(self, column):
        return {"sentence_embedding": self.layers(column["x"])}


class Job:
    """One rank's part of one fixed batch of anchors, positives and two columns of hard negatives."""

    def __init__(self, rank, sizes, labelled):
        self.rank, self.world = rank, len(sizes)
        torch.manual_seed(0)
        n = sum(sizes)
        start = sum(sizes[:rank])
        self.mine = slice(start, start + sizes[rank])
        self.columns = torch.randn(4, n, 6, dtype=torch.float64)[:, self.mine]
        ids = torch.arange(n) % (n - 2)
        self.labels = ids[self.mine] if labelled else None
        self.negative_labels = torch.cat([ids[self.mine], ids[self.mine] + 1]) if labelled else None

    def averaged(self, value, *parameters):
        """List a value and the gradients as DDP averages them."""
        value.backward()
        for p in parameters:
            if self.world > 1:
                dist.all_reduce(p.grad)
                p.grad /= self.world
        return [value.item(), *torch.cat([p.grad.reshape(-1) for p in parameters]).tolist()]

    def losses(self):
        """Compute every loss by a shared linear encoder."""
        found = {}
        cases = [(name, make, False) for name, make in LOSSES.items()]
        cases += [(name, make, True) for name, make in WITH_NEGATIVES.items()]
        for name, make, hard in cases:
            for local in (False,) if "released" in name else (True, False):
                torch.manual_seed(1)
                model = torch.nn.Linear(6, 5).double()
                tau = LogitScale(0.2).double()
                a, b, first, second = (model(x) for x in self.columns)
                extra = {"negatives": torch.cat([first, second])} if hard else {}
                if hard and self.labels is not None:
                    extra["negative_labels"] = self.negative_labels
                loss = DistributedLoss(make(tau), local=local)
                assert DistributedLoss(make(tau)).local is ("released" not in name)
                value = loss(a, b, self.labels, **extra)
                key = f"{name}, {'local' if local else 'full'}"
                found[key] = self.averaged(value, *model.parameters(), tau.log_scale)
        return found

    def texts(self):
        """Compute the face for sentence-transformers, also encoded in parts and inside DDP; count messages."""
        found, messages = {}, {}
        for name, columns, part in TEXTS:
            torch.manual_seed(1)
            model = Texts().double()
            wrapped = DistributedDataParallel(model) if self.world > 1 else model
            settings = {"gather_across_devices": True, "mini_batch_size": part}
            if name == "weince":
                loss = st.WEINCELoss(wrapped, **OPEN, **settings)
            else:
                loss = st.InfoNCELoss(wrapped, **settings)
            features = [{"x": x} for x in self.columns[:columns]]
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
                value = loss(features)
                value.backward()  # DDP averages
            gradients = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
            key = f"{name}, {columns} columns, parts of {part}"
            found[key] = [value.item(), *gradients.tolist()]
            sent = Counter(e.name for e in record.events() if e.name.startswith("c10d::"))
            messages[key] = dict(sorted(sent.items()))
        return found, messages

    def symmetric_texts(self):
        """Compute the face's loss of pairs in both directions."""
        torch.manual_seed(1)
        model = Texts().double()
        loss = st.InfoNCELoss(model, symmetric=True, gather_across_devices=True)
        return {"symmetric": self.averaged(loss([{"x": x} for x in self.columns[:2]]), *model.parameters())}

    def queue(self):
        """Fill a queue of 15 rows from two batches of all processes."""
        queue = Queue(15, 6)
        ids = torch.arange(100)[self.mine]
        for step, column in enumerate(self.columns[:2]):
            queue.append(gather_rows(column), gather_rows(ids + 100 * step))
        return {"rows": queue.rows.tolist(), "labels": queue.labels.tolist()}

    def work(self):
        """Count the multiplications of a loss by local queries and of one of the whole batch."""
        added = {torch.ops.aten.addmm_: lambda out, a, b, **_: 2 * a[0] * a[1] * b[1]}  # in place
        found = {}
        for local in (True, False):
            a, b = self.columns[:2].clone().requires_grad_().unbind(0)
            with FlopCounterMode(display=False, custom_mapping=added) as counter:
                DistributedLoss(NTXentLoss(), local=local)(a, b).backward()
            found["local" if local else "full"] = counter.get_total_flops()
        return found

    def culprit(self):
        """Say what is raised when the last process has a row that is not finite."""
        a, b = self.columns[:2].clone()
        if self.rank == self.world - 1:
            b[1, 2] = torch.nan
        try:
            DistributedLoss(NTXentLoss())(a, b)
        except InvalidInput as error:
            return str(error)
        return "nothing"


def run(rank, sizes, labelled, jobs):
    """Do the named jobs on this rank's rows."""
    job = Job(rank, sizes, labelled)
    return {name: getattr(job, name)() for name in jobs}


if __name__ == "__main__":
    rank, store, out, case = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=len(case["sizes"]),
        timeout=timedelta(seconds=60),
    )
    result = run(rank, **case)
    with open(f"{out}{rank}.json", "w", encoding="utf-8") as stream:
        json.dump(result, stream)
    dist.destroy_process_group()
