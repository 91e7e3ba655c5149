"""`tersor bench`: its rows, with the peer and without; no speed is asserted."""

import json

import pytest
from typer.testing import CliRunner

from tersor.evaluate import bench
from tersor.kernels import ops

pytest.importorskip("tersor.kernels._native")


def test_rows_and_settings():
    before = ops.get_num_threads()
    rows = list(bench.bench(4096, rounds=1, clock="cpu", levels=True, only="eden:4"))
    assert {row.operation for row in rows} >= {"eden:4,rotations=1 encode", "eden:4,rotations=1 decode"}
    assert {row.level for row in rows} == set(bench.native().cpu_levels().split())
    assert all(row.speed > 0 and row.of_copy > 0 and (row.of_peer is None) == (bench.peer() is None) for row in rows)
    assert ops.get_num_threads() == before


def test_transforms():
    rows = list(bench.transforms(6, 9, total=1 << 10, rounds=2))
    assert [row.points for row in rows] == [64, 128, 256, 512]


@pytest.mark.parametrize("more", [[], ["--transforms"]])
def test_command(more):
    from tersor.cli.app import app

    done = CliRunner().invoke(app, ["bench", "--size", "12", "--rounds", "1", "--only", "int8", *more])
    assert done.exit_code == 0 and "2**12 coordinates, 1 thread" in done.output
    done = CliRunner().invoke(app, ["bench", "--size", "12", "--rounds", "1", "--only", "int8", "--json", *more])
    assert json.loads(done.output)[0]["speed"] > 0
    assert CliRunner().invoke(app, ["bench", "--clock", "sun"]).exit_code == 2
