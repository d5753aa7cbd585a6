"""Each face against the real peer: same value and gradient where both are plain InfoNCE, and in its own loop."""

import copy
import sys
import warnings

import numpy as np
import pytest
import torch

from latentlink import InvalidInput
from latentlink.integrations import metric_learning, open_clip
from latentlink.integrations import sentence_transformers as st
from latentlink.losses import InfoNCELoss, NTXentLoss
from latentlink.losses.queue import Queue
from latentlink.tails.online import Gate

pytestmark = pytest.mark.filterwarnings("ignore")  # the peers' own
OPEN = Gate(pivot=0.9, margin=-5.0)


def views(n=24, d=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=g)
    return z0.requires_grad_(), (z0.detach() + 0.5 * torch.randn(n, d, generator=g)).requires_grad_()


def same(ours, theirs, inputs, rtol=2e-5):
    mine = torch.autograd.grad(ours, inputs, retain_graph=True)
    other = torch.autograd.grad(theirs, inputs)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=rtol)
    for x, y in zip(mine, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-6)


@pytest.mark.peers
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_lightly(tau):
    from lightly.loss import NTXentLoss as Theirs

    z = views()
    same(NTXentLoss(tau)(*z), Theirs(tau)(*z), z)


@pytest.mark.peers
def test_lightly_with_its_memory_bank():
    from lightly.loss import NTXentLoss as Theirs

    z, bank = views(), Theirs(0.2, memory_bank_size=(50, 8))
    with torch.no_grad():
        bank(*z)  # fills the bank's first rows
    queue = Queue(50, 8)
    queue.append(bank.memory_bank.bank, torch.arange(50))
    same(InfoNCELoss(0.2)(*z, queue.rows), bank(*z), z)


@pytest.mark.peers
@pytest.mark.parametrize("mode", [None, "unpaired", "paired"])
def test_info_nce_pytorch(mode):
    from info_nce import InfoNCE

    z = views()
    negatives = {None: None, "unpaired": views(7, seed=1)[0], "paired": torch.randn(24, 5, 8)}[mode]
    settings = {"temperature": 0.2, "reduction": "mean", "negative_mode": mode or "unpaired"}
    same(InfoNCELoss(**settings)(*z, negatives), InfoNCE(**settings)(*z, negatives), z)


@pytest.mark.peers
def test_open_clip_value_dictionary_and_live_scale():
    from open_clip.loss import ClipLoss

    z = views()
    scale = torch.tensor(10.0, requires_grad=True)
    a, b = (torch.nn.functional.normalize(x) for x in z)
    same(open_clip.InfoNCELoss()(a, b, scale), ClipLoss()(a, b, scale), (*z, scale))
    assert list(open_clip.WEINCELoss(gate=OPEN)(a, b, scale, output_dict=True)) == ["contrastive_loss"]
    a, b = (torch.nn.functional.normalize(x) for x in z)
    bias = torch.tensor(3.0)
    same(open_clip.InfoNCELoss()(a, b, scale, bias), ClipLoss()(a, b, scale, bias), (*z, scale))


@pytest.mark.peers
def test_open_clip_trains_with_its_own_model():
    import open_clip as peer

    tower = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16, "head_width": 16}
    text = {"context_length": 8, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1}
    model = peer.CLIP(embed_dim=16, vision_cfg=tower, text_cfg=text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, tokens = torch.randn(12, 3, 32, 32), torch.randint(1, 50, (12, 8))
    found = []
    for _ in range(6):
        image, words, scale = model(images, tokens)[:3]
        loss = open_clip.WEINCELoss(gate=OPEN)(image, words, scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    assert found[-1] < found[0]
    assert float(model.logit_scale.grad.abs()) > 0


@pytest.mark.peers
@pytest.mark.parametrize("referenced", [False, True])
def test_pytorch_metric_learning(referenced):
    from pytorch_metric_learning.losses import NTXentLoss as Theirs
    from pytorch_metric_learning.losses import SupConLoss

    z = views()
    labels = torch.arange(24) % 5
    extra = {"ref_emb": z[1], "ref_labels": labels.roll(3)} if referenced else {}
    inputs = z if referenced else z[:1]
    same(metric_learning.InfoNCELoss(0.1)(z[0], labels, **extra), Theirs(0.1)(z[0], labels, **extra), inputs)
    ours = metric_learning.InfoNCELoss(0.1, positives_in_denominator=True)
    same(ours(z[0], labels, **extra), SupConLoss(0.1)(z[0], labels, **extra), inputs)
    pairs = tuple(torch.tensor(x) for x in ([0, 1], [5, 6], [0, 1, 1], [2, 3, 4]))
    same(metric_learning.InfoNCELoss(0.1)(z[0], None, pairs), Theirs(0.1)(z[0], None, pairs), z[:1])
    assert metric_learning.WEINCELoss(0.1, gate=OPEN)(z[0], labels).shape == ()


@pytest.mark.peers
def test_pytorch_metric_learning_trains_with_its_miner_and_wrapper():
    from pytorch_metric_learning.losses import SelfSupervisedLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    torch.manual_seed(0)
    model, labels = torch.nn.Linear(8, 4), torch.arange(24) % 4
    x = torch.randn(4, 8)[labels] + 0.5 * torch.randn(24, 8)
    optimizer, found = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(10):
        z = model(x)
        loss = metric_learning.WEINCELoss(0.2, gate=OPEN)(z, labels, MultiSimilarityMiner()(z, labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    assert found[-1] < found[0]
    a, b = views()
    ours = metric_learning.InfoNCELoss(0.1)
    same(metric_learning.SelfSupervised(ours)(a, b), NTXentLoss(0.1)(a, b), (a, b))
    with pytest.raises(Exception, match="not supported"):  # their wrapper knows only classes of its own
        SelfSupervisedLoss(ours)


def tiny_sentence_model(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    special, animals = (
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        ["red", "blue", "green", "cat", "dog", "bird"],
    )
    words = [*special, *"abcdefghijklmnop", *animals]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)
    body = Transformer(str(folder), max_seq_length=16)
    return SentenceTransformer(modules=[body, Pooling(16)], device="cpu")


COLUMNS = {
    "anchor": ["red cat", "blue dog", "green bird", "a b c", "d e f", "g h i", "j k l", "m n o"],
    "positive": ["cat", "dog", "bird", "a b", "d e", "g h", "j k", "m n"],
    "negative": ["dog", "bird", "cat", "d", "g", "j", "m", "a"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tiny_sentence_model(tmp_path_factory.mktemp("bert"))


@pytest.mark.peers
@pytest.mark.parametrize("columns", [2, 3])
def test_sentence_transformers_value(model, columns):
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    names = list(COLUMNS)[:columns]
    features = lambda: [model.tokenize(COLUMNS[name]) for name in names]  # noqa: E731
    inputs = [p for p in model.parameters() if p.requires_grad]
    theirs = MultipleNegativesRankingLoss(model)(features(), None)
    wanted = torch.autograd.grad(theirs, inputs, allow_unused=True)
    for mini in (None, 3):
        ours = st.InfoNCELoss(model, mini_batch_size=mini)(features(), None)
        found = torch.autograd.grad(ours, inputs, allow_unused=True)
        assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
        for x, y in zip(found, wanted, strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("mini", [None, 3])
def test_sentence_transformers_trainer(model, tmp_path, mini):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
    )
    model = copy.deepcopy(model)
    loss = st.WEINCELoss(model, gate=OPEN, mini_batch_size=mini)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_dict(COLUMNS), loss=loss)
    trainer.train()
    steps = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 4
    assert steps[-1] < steps[0]
    assert loss.get_config_dict()["temperature"] == 0.05


@pytest.mark.peers
def test_gradcache_takes_our_loss(monkeypatch):
    import gradcache

    monkeypatch.setitem(sys.modules, "grad_cache", gradcache)  # its wheel imports itself by its old name
    from gradcache.grad_cache import GradCache

    torch.manual_seed(0)
    towers = [torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)]
    x, y = (z.detach() for z in views(12))
    loss = InfoNCELoss(0.2)
    expected = loss(towers[0](x), towers[1](y))
    wanted = torch.autograd.grad(expected, towers[0].weight)[0]
    cached = GradCache(models=towers, chunk_sizes=5, loss_fn=loss, get_rep_fn=lambda rep: rep)
    assert float(cached(x, y)) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(towers[0].weight.grad, wanted, rtol=1e-4, atol=1e-6)


def test_symmetric_with_hard_negatives_is_refused():
    x = torch.eye(3)
    with pytest.raises(InvalidInput, match="symmetric is True with 1 columns of negatives"):
        st.WEINCELoss(torch.nn.Module(), symmetric=True).compute_loss_from_embeddings([x, x, x])
