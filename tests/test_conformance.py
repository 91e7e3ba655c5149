"""Every registered codec against its claims: claims.toml says what they are, conformance*.py how each one is tested."""

import inspect
import tomllib
from dataclasses import fields
from pathlib import Path

import conformance
import conformance_inputs
import conformance_units
import numpy as np
import pytest

import tersor

CLAIMS = tomllib.loads((Path(__file__).parent / "claims.toml").read_text())
SPECS = [spec for table in CLAIMS.values() for spec in table["specs"]]
NAMES = [f.name for f in fields(tersor.Claims) if f.name != "error_law"]
MODULES = (conformance, conformance_units, conformance_inputs)
CHECKS = {
    name.removeprefix("check_"): function
    for module in MODULES
    for name, function in vars(module).items()
    if name.startswith("check_") and next(iter(inspect.signature(function).parameters)) == "codec"
}
SPECIAL = {"extremes", "torch"}
# A check that stands for one claim runs where the claim is made.
NEEDS = {
    "unbiased": "unbiased",
    "senders_are_independent": "unbiased",
    "rows": "row_addressable",
    "empty_rows": "row_addressable",
    "batches": "row_addressable",
    "loss": "tolerates_loss",
}


def expected(spec):
    table = CLAIMS[tersor.get_codec(spec).name]
    return {**{k: v for k, v in table.items() if not isinstance(v, dict | list)}, **table.get(spec, {})}


def test_every_codec_has_its_claims_written_down():
    assert set(CLAIMS) == set(tersor.codecs())
    for name, table in CLAIMS.items():
        assert set(table) >= {"specs", "scale_free", *NAMES} and table["specs"], name
        assert all(tersor.get_codec(spec).name == name for spec in table["specs"])
        assert {key for key, value in table.items() if isinstance(value, dict)} <= set(table["specs"])


def test_every_check_is_called():
    written = [line for m in MODULES for line in inspect.getsource(m).splitlines() if line.startswith("def check_")]
    assert len(written) == len(CHECKS) >= 20 and set(NEEDS) | SPECIAL <= set(CHECKS)


@pytest.mark.parametrize("spec", SPECS)
def test_claims(spec):
    codec = tersor.get_codec(spec)
    wanted = expected(spec)
    assert {name: getattr(codec.claims, name) for name in NAMES} == {name: wanted[name] for name in NAMES}
    assert codec.claims.error_law
    assert codec.spec == spec, "claims.toml lists canonical specs"


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("check", sorted(set(CHECKS) - SPECIAL))
def test_contract(check, spec):
    codec = tersor.get_codec(spec)
    claim = NEEDS.get(check)
    if claim is None or expected(spec)[claim]:
        CHECKS[check](codec)


@pytest.mark.parametrize("spec", SPECS)
def test_extremes(spec):
    conformance_inputs.check_extremes(tersor.get_codec(spec), expected(spec)["scale_free"])


@pytest.mark.parametrize("spec", SPECS)
def test_tensors(spec):
    conformance_inputs.check_torch(tersor.get_codec(spec), pytest.importorskip("torch"))


@pytest.mark.parametrize(
    "spec", ["eden:2,scale=biased", "eden:4,scale=norm", "eden:3,scale=one", "drive:biased", "int8", "bf16", "mxfp4"]
)
def test_the_test_of_bias_sees_bias(spec):
    """The power of check_unbiased: codecs that do not claim to be unbiased fail it."""
    with pytest.raises(AssertionError, match="sigma"):
        conformance.check_unbiased(tersor.get_codec(spec))


def test_one_rotation_is_biased_on_sparse_input_and_two_are_not():
    """Why rotations="auto" exists: (2, 1, 0, ...) under one round keeps a floor of 0.25 at 1 bit."""
    x = np.zeros(64, np.float32)
    x[:2] = 2, 1
    one = conformance.estimates(tersor.get_codec("eden:1,rotations=1"), x, 400).mean(0)
    auto = conformance.estimates(tersor.get_codec("eden:1"), x, 400).mean(0)
    assert tersor.nmse(x, one) > 0.2 > 0.01 > tersor.nmse(x, auto)
