"""Certificates and reports."""

import pytest

import duramen as dm
from duramen.cli.commands import core_names
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import conforms, process, table
from tests.io.files import write

QUICK = ("--probes", "4", "--steps", "1")


def test_certify_through_the_real_entry_point(core, files, tmp_path):
    done = process("certify", core, files / "rows.csv", *QUICK, "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    assert 0 < done.json["max_error"] < 0.3
    assert done.json["n_points"] == 3000


def test_certify_for_people(core, files, run):
    assert "lower bound on the worst case" in run("certify", core, files / "rows.parquet", *QUICK).out


def test_certify_refuses(core, files, refuse, tmp_path):
    other = write(table(2000), tmp_path / "other.parquet")
    for arguments, message in [
        ((core, other), "it was built from other data"),
        ((core, files / "numbers.csv"), "'age'"),
        ((core, files / "rows.csv", "--label", "ill"), "whose columns are fixed; leave --label out"),
        ((files / "rows.parquet", files / "rows.parquet"), "is a Parquet file without a coreset"),
        ((core, tmp_path / "absent.csv"), "no such file"),
    ]:
        assert message in refuse("certify", *arguments, *QUICK)


def test_report_through_the_real_entry_point(core, files, tmp_path):
    done = process("report", core, "-o", "r.html", "--data", files / "rows.csv", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    page = (tmp_path / "r.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert done.json["n_bytes"] == len(page.encode())
    assert "colour=red" in page


@pytest.mark.parametrize("title", [None, "The <best> customers"])
def test_report_of_a_store(store, run, tmp_path, title):
    given = () if title is None else ("--title", title)
    assert run("report", store, "-o", tmp_path / "r.html", *given).code == 0
    page = (tmp_path / "r.html").read_text()
    assert ("<h1>s.duramen" if title is None else "<h1>The &lt;best&gt; customers") in page


def test_a_store_is_certified_on_its_own_points(store, run, tmp_path, monkeypatch):
    """Points deleted since do not matter, as they would with a file; many points are certified on request."""
    page = tmp_path / "r.html"
    missing = "has not been compared with all the data"
    with dm.open_store(store) as live:
        live.delete(live.ids[:100])
    assert run("report", store, "-o", page).code == 0
    assert missing not in page.read_text()
    monkeypatch.setattr("duramen.cli.commands._QUICK", 100)
    done = run("report", store, "-o", page, "--force")
    assert done.code == 0
    assert "--certify" in done.err
    assert missing in page.read_text()
    assert run("report", store, "-o", page, "--force", "--certify").code == 0
    assert missing not in page.read_text()


def test_report_refuses(core, files, refuse, tmp_path):
    (tmp_path / "there.html").write_text("")
    for arguments, message in [
        ((files / "rows.csv", "-o", tmp_path / "r.html"), "is neither a store nor a coreset"),
        ((core, "-o", tmp_path / "r.txt"), "must end in .html"),
        ((core, "-o", tmp_path / "there.html"), "already exists; pass --force"),
        ((core, "-o", tmp_path / "r.html", "--data", tmp_path / "absent"), "absent: no such file"),
    ]:
        assert message in refuse("report", *arguments)


def test_the_report_of_a_coreset_names_the_suspected(core, run, tmp_path):
    assert run("report", core, "-o", tmp_path / "r.html").code == 0
    page, file = (tmp_path / "r.html").read_text(), dm.load_coreset(core)
    suspected = file.ids[file.suspected]
    assert sum(f"<b>{core_names(file)[int(one)]}</b>" in page for one in suspected) >= 20
    assert not any(str(one) in page for one in suspected)


def test_a_report_without_an_anchor_has_no_certificate(run, refuse, tmp_path):
    store, rows = tmp_path / "s.duramen", write(table(60), tmp_path / "rows.parquet")
    assert run("store", "init", store, *LEARN, *SMALL, "--quiet").code == 0
    assert run("store", "insert", store, rows, "--quiet").code == 0
    assert run("report", store, "-o", tmp_path / "r.html").code == 0
    assert "has no anchor to certify around" in refuse(
        "report", store, "-o", tmp_path / "s.html", "--data", rows
    )
    assert run("store", "coreset", store, "-o", tmp_path / "c.parquet").code == 0
    assert "duramen store reanchor" in run("certify", tmp_path / "c.parquet", rows).err
