"""The command line: every command, its JSON, its files, and one line instead of a traceback when something is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersor

typer_testing = pytest.importorskip("typer.testing")
pytest.importorskip("rich")

from tersor.cli.app import app  # noqa: E402
from tersor.evaluate.examples import default_specs  # noqa: E402

RUNNER = typer_testing.CliRunner()
RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 80)).astype(np.float32)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(*words: str, code: int = 0) -> Any:
    """Run a command; what it prints never holds a traceback."""
    result = RUNNER.invoke(app, list(words))
    assert "Traceback" not in result.output
    assert result.exit_code == code, (result.output, result.exception)
    return result


def fails(*words: str, saying: str) -> None:
    """A command ends with exit code 2 and one line on stderr that says what to do."""
    result = run(*words, code=2)
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("tersor"), result.stderr
    assert saying in result.stderr, result.stderr
    assert not [p for p in Path().iterdir() if p.name.endswith(".partial")]


def no_partial_files() -> bool:
    return not [p for p in Path().iterdir() if p.name.endswith(".partial")]


# The frame.


def test_version_and_help(here: Path) -> None:
    assert run("--version").stdout == f"tersor {tersor.__version__}\n"
    shown = run("--help").stdout
    for command in ("train", "compare", "recommend", "paper", "compress", "decompress", "inspect", "codecs", "doctor"):
        assert command in shown
        assert "Usage" in run(command, "--help").stdout


def test_usage_errors_are_one_line(here: Path) -> None:
    fails("comprss", saying="Did you mean 'compress'")
    fails("--bogus", saying="--bogus")
    fails("compress", saying="IN")
    fails("compare", "--demo", "normal:10", "--bogus", saying="--bogus")
    fails("compare", "--demo", "normal:10", "--seeds", "0", saying="--seeds")


def test_import_is_light() -> None:
    code = "import sys, tersor.cli, tersor.cli.app; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom tersor.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'tersor[cli]'" in done.stderr and "Traceback" not in done.stderr


def test_module_runs_and_pipes(here: Path) -> None:
    np.save("x.npy", X)
    command = [sys.executable, "-m", "tersor.cli"]
    done = subprocess.run([*command, "compress", "x.npy", "y.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "bits a coordinate" in done.stdout and "\x1b" not in done.stdout
    done = subprocess.run([*command, "inspect", "gone"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "tersor inspect: gone: No such file or directory\n")


# compare


def test_compare_measures_what_the_law_says(here: Path) -> None:
    result = run("compare", "--demo", "normal:2^15", "-c", "fp16,eden:2,eden:4,scale=biased", "--seeds", "4", "--json")
    rows = {row["codec"]: row for row in json.loads(result.stdout)["total"]}
    assert list(rows) == ["eden:2", "eden:4,scale=biased", "fp16"]  # by bits
    eden = rows["eden:2"]
    x = np.random.default_rng(0).standard_normal(2**15, np.float32)
    size = len(tersor.Eden(bits=2).encode(x, seed=0).to_bytes())
    assert eden["nbytes"] == size and eden["bits_per_coordinate"] == 8 * size / 2**15
    assert eden["vnmse"] == pytest.approx(eden["expected"], rel=0.05)
    assert eden["vnmse_of_mean"] == pytest.approx(eden["vnmse_of_mean_if_unbiased"], rel=0.05)
    assert abs(eden["bias_share"]) < 0.02 and eden["bias_verdict"] == "unbiased"
    assert eden["vnmse_told_by_sender"] == pytest.approx(eden["vnmse"], rel=1e-4)
    errors = [tersor.nmse(x, tersor.roundtrip(x, "eden:2", seed=seed)) for seed in range(4)]
    assert eden["vnmse"] == pytest.approx(np.mean(errors)) and eden["vnmse_spread"] == pytest.approx(
        np.std(errors, ddof=1)
    )
    assert rows["fp16"]["bias_share"] == pytest.approx(1) and rows["fp16"]["expected"] is None
    assert rows["fp16"]["bias_verdict"] == "biased" and rows["fp16"]["vnmse_spread"] == 0
    estimates = [tersor.roundtrip(x, "eden:2", seed=seed) for seed in range(4)]
    assert eden["max_abs_error"] == pytest.approx(max(float(np.abs(e - x).max()) for e in estimates))
    assert eden["vnmse_of_mean"] == pytest.approx(
        tersor.nmse(x, np.mean(estimates, axis=0, dtype=np.float64)), rel=1e-6
    )
    for name in ("encode_gb_s", "decode_gb_s", "copy_gb_s", "encode_to_copy"):
        assert eden[name] > 0


def test_compare_defaults_to_all_codecs_and_fits(here: Path) -> None:
    np.save("x.npy", X)
    shown = run("compare", "x.npy", "--seeds", "2").stdout
    for name in tersor.codecs():
        assert name in shown
    assert max(map(len, shown.split("\n"))) <= 80
    assert "float32, 64 x 80" in shown and "memcpy" in shown


def test_compare_a_file_of_tensors(here: Path) -> None:
    many = {f"w{i}": RNG.standard_normal(500) for i in range(5)} | {"steps": np.arange(3)}
    np.savez("m.npz", **many)
    shown = run("compare", "m.npz", "-c", "eden:4", "--seeds", "1").stdout
    assert "5 tensors together, 2,500 coordinates" in shown and "steps (int64[3])" in shown
    assert shown.count("memcpy ") == 1
    assert run("compare", "m.npz", "-c", "eden:4", "--each").stdout.count("memcpy ") == 6
    assert "w1: float64, 500" in run("compare", "m.npz", "-c", "eden:4", "-k", "w1").stdout
    assert "w1: float64, 500" in run("compare", "m.npz:w1", "-c", "eden:4").stdout
    parts = json.loads(run("compare", "m.npz", "-c", "eden:4", "--json").stdout)
    total = parts["total"][0]
    assert [t["name"] for t in parts["tensors"]] == list(many)[:5] and parts["skipped"] == ["steps"]
    assert total["nbytes"] == sum(t["codecs"][0]["nbytes"] for t in parts["tensors"])


def test_compare_tells_what_a_codec_cannot_do(here: Path) -> None:
    np.save("x.npy", X * 1e6)
    shown = run("compare", "x.npy", "-c", "fp16,eden:4").stdout
    assert "fp16 cannot encode this" in shown
    rows = json.loads(run("compare", "x.npy", "-c", "fp16,eden:4", "--json").stdout)["total"]
    assert rows[0]["vnmse"] < 0.02 and "65504" in rows[1]["problem"]


def test_compare_rows(here: Path) -> None:
    np.save("x.npy", X)
    rows = json.loads(run("compare", "x.npy", "-c", "eden:4", "--rows", "--json").stdout)["total"]
    assert rows[0]["nbytes"] == len(tersor.Eden(bits=4).encode(X, seed=0, axis=-1).to_bytes())


def test_compare_finds_a_bias_and_no_other(here: Path) -> None:
    specs = "eden:1,eden:4,sq:4,eden:1,scale=biased,eden:4,scale=biased,int8,none"
    for kind in ("normal", "lognormal", "sparse"):
        total = json.loads(run("compare", "--demo", f"{kind}:2^17", "-c", specs, "--json").stdout)["total"]
        verdicts = {row["codec"]: row["bias_verdict"] for row in total}
        for spec in ("eden:1", "eden:4", "sq:4"):
            assert verdicts[spec] == "unbiased", (kind, spec)
        for spec in ("eden:1,scale=biased", "eden:4,scale=biased", "int8"):
            assert verdicts[spec] == "biased", (kind, spec)
        assert verdicts["none"] == "exact"
        share = next(row["bias_share"] for row in total if row["codec"] == "eden:1,scale=biased")
        assert share == pytest.approx(1 - 2 / np.pi, abs=0.01)  # m**2 of m


@pytest.mark.parametrize("columns", [80, 100, 120, 160])
def test_compare_all_fits_the_terminal(here: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Names are whole, or at 80 columns broken where a field begins; columns go before names break."""
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("compare", "--demo", "sparse:4096", "--all", "-c", "eden:4,scale=biased", "--seeds", "2").stdout
    lines = shown.split("\n")
    assert max(map(len, lines)) <= columns
    names: list[str] = []
    for line in lines[3 : lines.index("")]:
        if line.startswith("  "):
            names[-1] += line.strip()
        else:
            names.append(line.split()[0])
    wanted = {tersor.get_codec(spec).spec for spec in ["eden:4,scale=biased", *default_specs()]}
    assert set(names) == wanted | {"memcpy"} and len(names) == len(wanted) + 1
    assert columns < 100 or not any(line.startswith("  ") for line in lines)
    assert all((head in lines[1]) == (columns == 160) for head in ("by chance", "max"))
    assert ("mean of 2" in lines[1]) == (columns >= 120) and "bits" in lines[1] and "bias" in lines[1]


def test_compare_draws(here: Path) -> None:
    pytest.importorskip("matplotlib")
    run("compare", "--demo", "lognormal:4096", "-c", "none,bf16,eden:1,eden:2", "--png", "a.png")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    fails("compare", "--demo", "normal:99", "--png", "a.png", saying="--force")
    run("compare", "--demo", "normal:99", "-c", "none", "--png", "a.png", "--force")


def test_compare_errors(here: Path) -> None:
    np.save("nan.npy", np.array([1, np.nan], np.float32))
    np.savez("a.npz", w=X)
    Path("bad.npz").write_bytes(b"PK nonsense")
    fails("compare", saying="--demo")
    fails("compare", "a.npz", "--demo", "normal", saying="one file")
    fails("compare", "--demo", "cauchy", saying="normal, lognormal, sparse")
    fails("compare", "a.npz", "-k", "v", saying="it has w")
    fails("compare", "a.npz:v", saying="it has w")
    fails("compare", "--demo", "normal:x", saying="2^20")
    fails("compare", "--demo", "normal:99", "-c", "nope:4", saying="no codec 'nope'")
    fails("compare", "--demo", "normal:99", "-c", ",", saying="no codec")
    fails("compare", "--demo", "normal:99", "--axis", "3", saying="axis")
    fails("compare", "nan.npy", saying="'nan': it holds NaN or infinity, first at [1]")
    fails("compare", "bad.npz", saying="damaged")
    fails("compare", "gone.npy", saying="No such file")
    fails("compare", "what.csv", saying=".safetensors")


# recommend


def recommend(*words: str) -> Any:
    return json.loads(run("recommend", *words, "--json").stdout)


def test_recommend_for_a_mean(here: Path) -> None:
    np.save("x.npy", np.random.default_rng(1).standard_normal(2**16).astype(np.float32))
    found = recommend("x.npy", "--budget", "4.1bit", "--use", "mean", "--senders", "10")
    # EDEN with an entropy coder, next without: four bits and a little, as headers and scales leave room for.
    codec = tersor.get_codec(found["chosen"]["codec"])
    assert isinstance(codec, tersor.Eden) and codec.grid == "uniform" and codec.scale == "unbiased"
    assert found["chosen"]["score"] == pytest.approx(codec.expected_error() / 10, rel=0.05)
    second = tersor.get_codec(found["runners_up"][0]["codec"])
    assert isinstance(second, tersor.Eden) and second.grid == "lloyd" and 4 < second.bits < 4.1
    assert 4.08 < found["runners_up"][0]["bits_per_coordinate"] <= 4.1
    assert "depends on the values" in found["reasons"][0]
    assert found["chosen"]["score"] <= min(c["score"] for c in found["runners_up"])
    why = {e["codec"]: e["why"] for e in found["excluded"]}
    assert "over the budget" in why["eden:6"] and "over the budget" in why["bf16"]
    assert all(c["bits_per_coordinate"] <= 4.1 for c in found["runners_up"])
    biased = recommend("x.npy", "-b", "4.6", "-c", "int4,eden:3,eden:4,scale=biased")
    assert biased["chosen"]["codec"] == "eden:3"
    assert all("biased" in e["why"] for e in biased["excluded"]) and len(biased["excluded"]) == 2


def test_recommend_for_a_mean_looks_at_the_mean(here: Path) -> None:
    """One message of half a bit errs by more than zeros would, the mean of ten by far less."""
    found = recommend("--demo", "normal:2^15", "-b", "0.6", "-c", "eden:0.5,randk:0.01", "--senders", "10")
    assert found["chosen"]["codec"] == "eden:0.5" and found["chosen"]["measured"]["vnmse"] > 1
    assert found["chosen"]["score"] == pytest.approx(0.214, rel=0.1)
    assert [e["codec"] for e in found["excluded"]] == ["randk:0.01"]


def test_recommend_counts_everything(here: Path) -> None:
    found = recommend("--demo", "normal:2^14", "--budget", "2bit", "-c", "eden:1,eden:2")
    assert found["chosen"]["codec"] == "eden:1"  # eden:2 takes 2.02 bits with scales and header
    assert any("eden:2 takes 2.0" in note for note in found["notes"])


def test_recommend_measures_part_of_large_tensors(here: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.randn(5000, 128).bfloat16()}, "m.pt")
    found = recommend("m.pt", "-b", "4.3", "-u", "search", "-c", "eden:4", "--sample", "2^16")
    assert found["measured_on"] == 2**16 and found["chosen"]["recall_at_10"] > 0.5
    size = tersor.Eden(bits=4).nbytes((5000, 128), "bfloat16", axis=-1)
    assert found["chosen"]["bits_per_coordinate"] == 8 * size / 640_000


def test_recommend_for_a_store_may_be_biased(here: Path) -> None:
    found = recommend(
        "--demo", "lognormal:2^15", "--budget", "2.1", "--use", "store", "-c", "eden:2,eden:2,scale=biased"
    )
    assert found["chosen"]["codec"] == "eden:2,scale=biased"
    assert recommend("--demo", "normal:2^15", "-b", "32.1", "-u", "store")["chosen"]["codec"] == "none"


def test_recommend_for_a_search_measures_recall(here: Path) -> None:
    np.savez("m.npz", w=RNG.standard_normal((400, 64)).astype(np.float32), b=RNG.standard_normal(64))
    found = recommend("m.npz", "--budget", "4.7", "--use", "search")
    recalls = [c["recall_at_10"] for c in [found["chosen"], *found["runners_up"]]]
    assert found["measured_on"] == 400 * 64  # a vector is no set of rows
    assert 0.6 < recalls[0] <= 1 and recalls[0] >= max(recalls) - 0.01
    assert tersor.get_codec(found["chosen"]["codec"]).claims.row_addressable
    fails("recommend", "m.npz:b", "--use", "search", saying="rows")


def test_recommend_knows_when_it_does_not_pay(here: Path) -> None:
    shown = run("recommend", "--demo", "normal:2^16", "-b", "4.1", "-c", "eden:4", "--links", "1mbit,4000gbit").stdout
    assert "At 1 Mbit/s, encode + send + decode" in shown and "sooner" in shown
    assert "4000 Gbit/s it does not pay" in " ".join(shown.split())
    assert max(map(len, shown.split("\n"))) <= 80


def test_recommend_errors(here: Path) -> None:
    np.save("nan.npy", np.array([1, np.nan], np.float32))
    fails("recommend", "--demo", "normal", "--budget", "two", saying="2bit")
    fails("recommend", "--demo", "normal", "--use", "art", saying="mean, store, search")
    fails("recommend", "--demo", "normal:9999", "-b", "0.2", "-c", "eden:1,none", saying="no codec fits 0.2 bits")
    fails("recommend", "nan.npy", saying="'nan': it holds NaN")


# paper


def test_paper_list(here: Path) -> None:
    shown = run("paper").stdout
    listed = json.loads(run("paper", "--json").stdout)
    assert {p["id"] for p in listed} >= {"eden", "drive", "rht", "quantizers", "quicfl", "turboquant-note"}
    for entry in listed:
        assert entry["id"] in shown and entry["arxiv"] in shown.replace("\n", "")
    assert max(map(len, shown.split("\n"))) <= 80
    fails("paper", "nope", saying="eden")
    fails("paper", "--full", saying="name a paper")


def test_paper_prints_and_writes(here: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = run("paper", "rht", "--out", "there").stdout
    assert "2605.06014" in shown and " 0 off" in shown and "there/rht.csv" in shown
    assert max(map(len, shown.split("\n"))) <= 80
    lines = Path("there/rht.csv").read_text().splitlines()
    assert lines[0].startswith("what,case,place,theirs,ours") and len(lines) > 100
    assert Path("there/rht-senders.png").read_bytes().startswith(b"\x89PNG")


# compress, decompress, inspect


def test_npz_there_and_back(here: Path) -> None:
    arrays = {"layer/w": X, "b": RNG.standard_normal(100).astype(np.float16), "scalar": np.float64(3.0)}
    np.savez("m.npz", **arrays)
    shown = run("compress", "m.npz", "m.safetensors", "-c", "eden:6", "--policy", "b=fp16", "--seed", "1").stdout
    assert "vNMSE" in shown and "times smaller" in shown
    with tersor.open("m.safetensors") as file:
        assert {name: file[name].spec for name in file} == {"layer/w": "eden:6", "b": "fp16", "scalar": "none"}
    run("decompress", "m.safetensors", "back.npz")
    with np.load("back.npz") as back:
        assert {n: (back[n].dtype, back[n].shape) for n in back} == {
            n: (np.asarray(a).dtype, np.shape(a)) for n, a in arrays.items()
        }
        assert tersor.nmse(X, back["layer/w"]) < 0.001 and (back["b"] == arrays["b"]).all()
    run("decompress", "m.safetensors", "back.safetensors")
    fails("decompress", "m.safetensors", "back.npy", saying="holds one tensor")
    assert no_partial_files()


def test_npy_there_and_back(here: Path) -> None:
    np.save("x.npy", np.asfortranarray(X))
    summary = json.loads(run("compress", "x.npy", "x.safetensors", "--axis", "-1", "--json").stdout)
    assert summary["bytes_after"] == Path("x.safetensors").stat().st_size
    run("decompress", "x.safetensors", "y.npy")
    assert tersor.nmse(X, np.load("y.npy")) == pytest.approx(summary["vnmse"], rel=1e-9)
    assert "64 rows of 80" in run("inspect", "x.safetensors").stdout


def test_same_seed_same_bytes(here: Path) -> None:
    np.save("x.npy", X)
    for out in ("a.safetensors", "b.safetensors"):
        run("compress", "x.npy", out, "--seed", "5", "--no-check")
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()


def test_torch_files_keep_bfloat16(here: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    state = {"w": torch.randn(40, 30).bfloat16(), "b": torch.randn(30), "none": torch.zeros(0, 3)}
    safetensors.save_file(state, "m.safetensors")
    torch.save({"model": state, "epoch": 3}, "m.pt")
    for source, extra, prefix in (("m.safetensors", (), ""), ("m.pt", ("--skip-other",), "model.")):
        run("compress", source, "c.safetensors", "--force", "-c", "eden:8", *extra)
        run("decompress", "c.safetensors", "d.safetensors", "--force")
        back = safetensors.load_file("d.safetensors")
        for name, tensor in state.items():
            assert (back[prefix + name].dtype, back[prefix + name].shape) == (tensor.dtype, tensor.shape)
            assert tersor.nmse(tensor, back[prefix + name]) < 1e-3
    assert "w" in run("decompress", "c.safetensors", "d.npz").stdout  # told that it became float32
    with np.load("d.npz") as back:
        assert back["model.w"].dtype == np.float32
    fails("compress", "m.pt", "e.safetensors", saying="epoch (Python int)")


def test_pt_files_run_no_code(here: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(3), "evil": pytest.raises}, "m.pt")
    Path("junk.pt").write_bytes(b"junk")
    fails("compress", "m.pt", "o.safetensors", saying="weights_only")
    fails("compress", "junk.pt", "o.safetensors", saying="junk.pt")


def test_other_tensors(here: Path) -> None:
    np.savez("m.npz", w=X, ids=np.arange(9), mask=np.ones(3, bool))
    run("compress", "m.npz", "kept.safetensors")
    shown = run("inspect", "kept.safetensors").stdout
    assert "(as it was)" in shown and "I64" in shown and "BOOL" in shown
    run("decompress", "kept.safetensors", "back.npz")
    with np.load("back.npz") as back:
        assert back["ids"].dtype == np.int64 and (back["ids"] == np.arange(9)).all()
        assert back["mask"].dtype == bool and back["mask"].all() and tersor.nmse(X, back["w"]) < 0.02
    np.savez("m.npz", w=X, ids=np.arange(9), text=np.array(["a"]), z=np.ones(2, complex))
    fails("compress", "m.npz", "m.safetensors", saying="text (str32[1]), z (complex128[2]); --skip-other")
    assert not Path("m.safetensors").exists()
    shown = run("compress", "m.npz", "m.safetensors", "--skip-other").stdout
    assert "Left out" in shown and "ids (int64[9])" in shown
    np.save("i.npy", np.arange(4))
    np.save("o.npy", np.array([{}], object), allow_pickle=True)
    fails("compress", "i.npy", "o.safetensors", saying="no float tensor")
    fails("compress", "o.npy", "o.safetensors", saying="no float tensor")


def test_compress_errors(here: Path) -> None:
    np.save("x.npy", X)
    np.savez("nan.npz", good=X, bad=np.array([[1.0], [np.inf]]))
    Path("old.safetensors").write_text("precious")
    fails("compress", "x.npy", "old.safetensors", saying="--force")
    assert Path("old.safetensors").read_text() == "precious"
    fails("compress", "nan.npz", "old.safetensors", "--force", "--keep-below", "0", saying="'bad': x[1, 0] is inf")
    assert Path("old.safetensors").read_text() == "precious"
    fails("compress", "x.npy", "x.npz", saying=".safetensors")
    fails("compress", "x.npy", "gone/x.safetensors", saying="no directory gone")
    fails("compress", "x.npy", "y.safetensors", "-c", "eden:9", saying="bits")
    fails("compress", "x.npy", "y.safetensors", "--policy", "b", saying="PATTERN=SPEC")
    run("compress", "x.npy", "y.safetensors")
    fails("compress", "y.safetensors", "z.safetensors", saying="compressed by tersor already")
    fails("compress", "y.safetensors", "y.safetensors", "--force", saying="input itself")
    fails("decompress", "y.safetensors", "x.npy", saying="--force")
    fails("decompress", "y.safetensors", "x.txt", saying=".npz")
    fails("decompress", "x.npy", "z.npy", saying="not compressed")


def test_damaged_files(here: Path) -> None:
    np.savez("x.npz", a=X, b=X)
    run("compress", "x.npz", "y.safetensors")
    raw = bytearray(Path("y.safetensors").read_bytes())
    raw[-100] ^= 1
    Path("y.safetensors").write_bytes(raw)
    fails("inspect", "y.safetensors", saying="checksum")
    fails("decompress", "y.safetensors", "z.npz", saying="checksum")
    assert not Path("z.npz").exists()
    Path("y.safetensors").write_bytes(raw[:100])
    fails("inspect", "y.safetensors", saying="truncated")
    fails("compress", "y.safetensors", "z.safetensors", saying="y.safetensors")


def test_inspect_every_kind(here: Path) -> None:
    codec = tersor.get_codec("sq:4")
    shared = codec.merge(np.stack([codec.measure(X)]), key=255)
    total = codec.add(codec.encode(X, seed=1, shared=shared), codec.encode(X, seed=1, sender=1, shared=shared))
    Path("sum.bin").write_bytes(total.to_bytes())
    shown = run("inspect", "sum.bin").stdout
    assert "2 messages" in shown and "00000000000000ff" in shown and "plane codes" in shown
    bundle = tersor.encode_dict({"w": X, "b": X[0]}, "eden:3", {"b": "fp16"}, seed=1)
    Path("bundle.bin").write_bytes(bundle.to_bytes())
    shown = run("inspect", "bundle.bin").stdout
    assert re.search(r"w +eden:3 +64 x 80 +float32", shown) and "a bundle, 2 tensors" in shown
    assert f"{bundle['w'].key:016x}" in run("inspect", "--long", "bundle.bin").stdout
    listed = json.loads(run("inspect", "bundle.bin", "--json").stdout)
    assert listed["bytes"] == bundle.nbytes and listed["tensors"][0]["planes"]["codes"]["bits"] == 3
    run("decompress", "bundle.bin", "d.npz")
    with np.load("d.npz") as back:
        assert back["w"].shape == X.shape
    Path("note.txt").write_text("hello")
    fails("inspect", "note.txt", saying="not a file that tersor wrote")
    fails("inspect", ".", saying="directory")


# codecs, doctor


def test_codecs(here: Path) -> None:
    shown = run("codecs").stdout
    listed = {c["name"]: c for c in json.loads(run("codecs", "--json").stdout)}
    assert list(listed) == list(tersor.codecs()) and all(name in shown for name in listed)
    assert "scale=unbiased" in shown and "4: 0.00959" in shown and max(map(len, shown.split("\n"))) <= 80
    words = " ".join(shown.split())
    assert "EDEN: b bits a coordinate" in words and "eden:2,grid=uniform: no longer: rows move as bytes" in words
    assert "turboquant:2,kind=prod: unbiased; vNMSE: (pi/2) m_(b-1)" in words and "3,kind=prod: 0.185" in words
    assert listed["eden"]["claims"]["unbiased"] and listed["eden"]["expected_error"]["eden:1"] == pytest.approx(
        0.571, rel=0.01
    )


def test_doctor_is_well(here: Path) -> None:
    report = json.loads(run("doctor", "--json").stdout)
    topics = {f["topic"]: f for f in report["findings"]}
    assert report["ok"] and {"tersor", "backend", "self-test", "extra torch", "slow link"} <= set(topics)
    assert all(f["hint"] for f in topics.values() if f["topic"].startswith("extra") and f["state"] == "note")


def test_doctor_finds_what_is_broken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tersor.evaluate.doctor._link", lambda: iter(()))
    monkeypatch.setattr("tersor.nmse", lambda x, y: 1.0)
    result = run("doctor", code=1)
    assert "BROKEN" in result.stdout and "check failed" in result.stderr


def test_doctor_without_native_core(here: Path) -> None:
    code = "import sys; sys.modules['tersor.kernels._native'] = None\nfrom tersor.cli import main; main()"
    env = {k: v for k, v in os.environ.items() if k != "TERSOR_BACKEND"}
    done = subprocess.run([sys.executable, "-c", code, "doctor", "--json"], capture_output=True, text=True, env=env)
    topics = {f["topic"]: f for f in json.loads(done.stdout)["findings"]}
    assert topics["backend"]["state"] == "note" and topics["backend"]["text"].startswith("reference")
    assert "compiler" in topics["backend"]["hint"] and done.returncode == 0
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1
