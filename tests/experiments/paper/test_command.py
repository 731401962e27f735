"""``python -m experiments.paper``: runs, resumes, and reports what is wrong before anything takes time."""

import sys
from importlib import import_module

import pytest

paper = pytest.importorskip("experiments.paper.__main__", reason="not in a checkout")
from experiments.paper.table1 import Table1  # noqa: E402

from tests.cli.running import Done  # noqa: E402
from tests.support import tables  # noqa: E402

SMALL = ("--made-up", "--rows", 20_000, "--trials", 1)


def counted(self, seed):
    """Stand in for a trial: figures that are known."""
    fit = {"loss": 1.01, "accuracy": 0.75, "rows": 1000, "building": 0.1, "solving": 0.1}
    names = [name for _, name in sys.modules["experiments.paper.table1"]._titles()]
    names += [name.replace("paper", "best") for name in names if "+" in name]
    full = {**fit, "loss": 1.0, "solving": 19.9}
    return {"full": full, "ours": full, "fits": dict.fromkeys(names, fit)}


@pytest.fixture
def run(capsys):
    def call(*arguments):
        try:
            code = paper.main([str(one) for one in arguments])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return Done(code, out, "".join(line for line in err.splitlines(True) if line[3:5] != "% "))

    return call


def test_the_table_is_printed_and_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Table1, "_trial", counted)
    out = tmp_path / "new" / "folder"
    done = run("table1", *SMALL, "--out", out, "--no-plots")
    assert (done.code, done.err) == (0, "")
    row = next(row for table in tables(done.out) for row in table if row[0] == "QR+")
    assert row == ["QR+", "4,000", "1.025", "x 23.4"] + 2 * ["1.0100 (1.0100)", "x 100.0"]
    assert "in 6 of 6 rows, speed-up in 6 of 6." in done.out
    assert sorted(one.name for one in out.iterdir()) == ["table1.json", "table1.md"]
    assert (
        "python -m experiments.paper table1 --trials 1 --made-up --rows 20000"
        in (out / "table1.md").read_text()
    )


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(run, tmp_path, monkeypatch):
    done = []

    def interrupted(self, seed):
        if seed == 1 and len(done) == 1:
            raise KeyboardInterrupt
        done.append(seed)
        return counted(self, seed)

    monkeypatch.setattr(Table1, "_trial", interrupted)
    command = ("table1", *SMALL[:-1], 2, "--out", tmp_path, "--no-plots")
    first = run(*command)
    assert first.code == 130
    assert first.err == (f"interrupted; results so far are in {tmp_path}, and the same command continues\n")
    done.append("again")
    assert run(*command).code == 0
    assert done == [0, "again", 1]
    assert run(*command, "--fresh").code == 0
    assert done == [0, "again", 1, 0, 1]
    done.clear()
    assert "the same command without --fresh continues" in run(*command, "--fresh").err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("table1", "--rows", 30_000), "--rows 30000 is for made-up data; add --made-up"),
        (("table1", "--made-up", "--data", "."), "--data . and --made-up exclude each other"),
        (("table1", "--data", "nowhere"), "there is no covertype.parquet in nowhere; name its folder"),
        (("table2", "--data", "nowhere"), "neither 3D_spatial_network.txt (the UCI 3D Road Network) nor"),
        (("table1", "--trials", 0), "--trials"),
        (("table1", *SMALL, "--out", __file__), f"--out {__file__} is a file; name a folder for the results"),
        (("table1", "--made-up", "--rows", 100), "--rows"),
        (("table9",), "table9"),
    ],
)
def test_errors_take_one_line_and_nothing_is_written(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_data_of_too_few_rows_are_refused(run, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"c{number}": range(30) for number in range(55)}
    pq.write_table(pa.table(columns), tmp_path / "covertype.parquet")
    for which in ("table1", "figure3", "attacks", "dynamic"):
        done = run(which, "--data", tmp_path, "--out", tmp_path / "out", "--no-plots")
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            "python -m experiments.paper: Covertype has 30 rows here, too few to show anything; 20,000 are needed\n"
        )
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_the_extra_and_the_way_round_are_named(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("table1", *SMALL, "--out", tmp_path)
    assert done.code == 2
    assert "pip install 'duramen[plot]'" in done.err
    assert "--no-plots" in done.err
    assert not list(tmp_path.iterdir())


def test_all_is_every_experiment_once(run, tmp_path, monkeypatch):
    made = []
    wanted = ["table1", "table2", "figure3", "figure3c", "attacks", "dynamic"]
    monkeypatch.setattr(paper, "run_experiment", lambda experiment, _: made.append(experiment))
    for kind in wanted:
        module = import_module(f"experiments.paper.{kind}")
        monkeypatch.setattr(getattr(module, kind.capitalize()), "summary", lambda *_: "")
    assert run("all", *SMALL, "--out", tmp_path, "--no-plots").code == 0
    assert [one.name for one in made] == wanted
    assert {one.trials for one in made} == {1}
    assert {len(one.table.X) for one in made} == {20_000}
