"""Golden messages: files of format version 0 decode to the values written beside them, and are what we write today.

If this fails after a change that is meant to change bytes (allowed in version 0 only): `python tests/golden/make.py`.
"""

import json

import make
import numpy as np
import pytest

import tersor

EXPECTED = json.loads((make.HERE / "expected.json").read_text())


def test_every_file_has_its_values():
    assert sorted(EXPECTED) == sorted(make.messages())
    assert sorted(map(make.file_name, EXPECTED)) == sorted(p.stem for p in make.HERE.glob("*.tersor"))


@pytest.mark.parametrize("name", EXPECTED)
def test_decodes(name):
    wanted = EXPECTED[name]
    out = make.decoded((make.HERE / f"{make.file_name(name)}.tersor").read_bytes())
    assert len(out) == wanted["size"] and out[:4].tolist() == wanted["first"], "bit for bit"
    assert out.sum() == pytest.approx(wanted["sum"], rel=1e-12, abs=1e-9)
    assert np.sqrt((out**2).sum()) == pytest.approx(wanted["norm"], rel=1e-12)


@pytest.mark.parametrize("name", EXPECTED)
def test_is_written_the_same_today(name):
    assert make.messages()[name] == (make.HERE / f"{make.file_name(name)}.tersor").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in EXPECTED
        if n in ("eden4-vector", "eden2-rows", "eden5-full", "eden3-blocks", "drive", "int8", "fp16", "bf16", "none")
    ],
)
def test_estimates_what_was_encoded(name):
    raw = (make.HERE / f"{make.file_name(name)}.tersor").read_bytes()
    enc = tersor.from_bytes(raw)
    law = {"drive": 0.7, "eden2-rows": 0.15, "eden3-blocks": 0.05}.get(name, 0.012)
    assert tersor.nmse(make.values(enc.size).reshape(enc.shape), tersor.decode(enc)) < law
