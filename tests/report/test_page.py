"""Pages: well-formed, whole, safe, the same each time, and plain where something is unknown."""

import contextlib
import dataclasses
import re
import sys
import types

import numpy as np
import pandas as pd
import pytest

import duramen as dm
from duramen.report.page import report_html
from duramen.store.store import AnchorEvent
from tests.conformance.cases import CASES
from tests.coreset.cores import kmeans_core, logistic_core, own_loss_core, sparse_core
from tests.report.cores import NASTY, SECTIONS, Page, case_of, core_of

HISTORY = (
    AnchorEvent("2025-01-01T00:00:00+00:00", "first anchor", 201, 0.25, None),
    AnchorEvent("2025-02-01T00:00:00+00:00", "reanchor", 900, 0.125, 1.5),
)


def checked(text):
    """Read a page, and check what holds for each."""
    page = Page(text)
    assert [one for one in page.ids if one in SECTIONS] == list(SECTIONS)
    assert len(page.ids) == len(set(page.ids))
    assert page.links == [f"#{key}" for key in SECTIONS]
    bad = r"https?:|url\(|@import|<script|javascript:|\bnan\b|None\b(?! was given)"
    assert not re.search(bad, text.partition("</style>")[2])
    assert "url(" not in text
    assert "@import" not in text
    text.encode()
    return page


def live(n=600, **settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    X[:5] += 30
    names = [f"row {k}" for k in range(n)]
    names[0] = NASTY.replace("\ud800", "").replace("\x00", "")
    made = dm.DynamicCoreset(dm.KMeansLoss(2), size=100, n_outliers=5, random_state=0, **settings)
    made.insert(pd.DataFrame(X, columns=["a", "b", "<i>c"]), ids=names)
    return made


def page_of(made, **settings):
    """Make the page of a dynamic coreset."""
    core, names = made.coreset(), None
    with contextlib.suppress(KeyError):
        names = dict(zip(core.ids.tolist(), made.names_of(core.ids), strict=True))
    return report_html(core, title="t", live=made, names=names, **settings)


def keeping(**what):
    """Make a dynamic coreset that keeps more, as a store does."""
    made = live()
    vars(made).update(what)
    return made


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_every_loss_has_a_page(case):
    page = checked(report_html(core_of(case), title=case.name))
    assert "60 weighted rows that stand for 300 points" in page.text


@pytest.mark.parametrize("sampler", ["layered", "leverage", "sensitivity", "uniform"])
@pytest.mark.parametrize("name", ["logistic", "k-means"])
def test_every_sampler_has_a_page(name, sampler):
    core = core_of(case_of(name), sampler)
    page = checked(report_html(core, title=sampler))
    layers = len(np.unique(core.groups[core.groups >= 0]))
    assert f"{layers} layer{'s' * (layers != 1)} of points that are not suspected" in page.text
    assert core.sampler in page.text


def test_figures_are_those_of_the_coreset():
    core = logistic_core()
    page = checked(report_html(core, title="t", certificate=None))
    effective = core.weights.sum() ** 2 / (core.weights**2).sum()
    assert f"effective size {effective:,.0f} of 60 rows" in page.text
    assert f"suspected outliers {core.n_suspected}" in page.text
    there = core.estimate(core.anchor.theta)
    each = dm.Estimate.of(there.value / 390, there.std_error / 390)
    assert f"mean loss kept {each.value:.{1 - int(np.floor(np.log10(each.std_error)))}f}" in page.text
    assert str(core.seed) in page.text


def test_suspected_rows_are_crosses_and_bars_fit():
    core = kmeans_core(n_outliers=20)
    text = report_html(core, title="t")
    page = checked(text)
    crosses = [attrs for tag, attrs in page.tags if tag == "path" and "transform" in attrs]
    assert len(crosses) == np.count_nonzero(core.suspected) + 3  # and the centres
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%", text)]
    assert min(widths) >= 0
    assert max(widths) <= 100
    assert "all else" in text  # the fourth column


def test_a_live_coreset_with_names_and_history():
    made = keeping(history=HISTORY)
    assert page_of(made) == page_of(keeping(history=HISTORY))
    made.fit()
    page = checked(page_of(made))
    report = made.anchor_report()
    assert "Live coreset" in page.text
    assert "all else" not in page.text  # all three columns are shown
    assert "first anchor" in page.text
    assert "2025-02-01 00:00:00 UTC reanchor 900 0.125 1.5" in page.text
    assert f"{report.n_late:,} of {report.n_points:,} points" in page.text
    assert "row 3" in page.text
    assert "engine ranked" in page.text


def test_an_anchor_that_no_longer_fits_says_so():
    made = live()
    made.insert(np.random.default_rng(1).normal(size=(2000, 3)), ids=[f"late {k}" for k in range(2000)])
    assert made.anchor_report().advised
    assert "reanchor() is advised" in checked(page_of(made)).text


def test_what_a_store_keeps_is_found():
    notes = {"source": "a.csv", "encoding": {"secret": 1}}
    page = checked(page_of(keeping(history=HISTORY, notes=notes, path="/somewhere/a.duramen")))
    assert "source a.csv" in page.text
    assert "secret" not in page.text
    assert "reanchor" in page.text
    assert "/somewhere/a.duramen" in page.text


def test_everything_is_escaped():
    core = dataclasses.replace(logistic_core(), columns=(NASTY, "b" * 500, "c"), sampler=NASTY)
    encoding = types.SimpleNamespace(label=NASTY, classes=(NASTY, "<b>"))
    notes = {NASTY: NASTY, "list": [1, {"a": "<i>"}]}
    made = keeping(history=[AnchorEvent(NASTY, NASTY, 3, 0.5, None)], notes=notes)
    page = checked(report_html(core, title=NASTY, live=made, encoding=encoding))
    assert "alert" not in {tag for tag, _ in page.tags}
    assert page.text.count("<script>alert('x')</script>") >= 6
    checked(page_of(live()))


def test_an_encoding_names_columns_and_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, size=200)
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=40, n_outliers=3, random_state=0)
    core = dataclasses.replace(core, columns=("age", "colour=red"))
    encoding = types.SimpleNamespace(label="bought", classes=("no", "yes"))
    page = checked(report_html(core, title="t", encoding=encoding))
    assert "age, colour=red" in page.text
    assert "bought = yes" in page.text
    assert "bought no" in page.text


def test_a_certificate_is_shown():
    X = np.random.default_rng(0).normal(size=(500, 2))
    core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=100, n_outliers=5, random_state=0)
    found = dm.certify(core, X, radius=0.5, n_probes=8, ascent_steps=3)
    text = report_html(core, title="t", certificate=found)
    page = checked(text)
    for kind in np.unique(found.kinds):
        assert f"{kind} {np.count_nonzero(found.kinds == kind)}" in page.text
    assert "Histogram of the errors" in text
    errors = np.where(found.errors == found.max_error, np.inf, found.errors)
    broken = dataclasses.replace(found, errors=errors)
    assert "is infinite:" in checked(report_html(core, title="t", certificate=broken)).text


# what is unknown is said in a sentence


def unknown_cases():
    rng = np.random.default_rng(0)
    few = dm.DynamicCoreset(dm.KMeansLoss(2), size=50, n_outliers=2)
    few.insert(rng.normal(size=(6, 1)))
    one = dm.DynamicCoreset(dm.KMeansLoss(1), size=50)
    one.insert([1.0, 2.0])
    plain = dataclasses.replace(core_of(case_of("k-means")), anchor=None)
    failing = dataclasses.replace(own_loss_core(), loss=Failing())
    return {
        "no anchor yet": (few, ["There is no anchor yet: 51 points are needed", "spread out at random"]),
        "one point": (one, ["1 weighted row that stands for 1 point"]),
        "no anchor": (plain, ["There is no anchor"]),
        "tree": (
            live(engine="tree"),
            ["There are no error bars", "unknown inclusion probabilities", "engine tree"],
        ),
        "own loss": (own_loss_core(), ["What makes up this loss is unknown"]),
        "failing loss": (failing, ["could not be computed: no luck"]),
        "no suspects, no certificate": (kmeans_core(), ["No row is suspected", "z is 0", "None was given"]),
        "no labels, no history": (kmeans_core(), ["labels none", "No history of the anchor was kept"]),
        "sparse": (sparse_core(), ["40 of sparse float64"]),
        "float32": (core_of(case_of("k-means"), dtype=np.float32), ["3 of float32"]),
    }


class Failing(dm.Loss):
    """A loss that fails, and whose repr does too."""

    def __repr__(self):
        raise RuntimeError("no luck")

    def values(self, theta, X, y=None):
        raise RuntimeError("no luck")


@pytest.mark.parametrize("name", list(unknown_cases()))
def test_what_is_unknown_is_said(name):
    subject, sentences = unknown_cases()[name]
    is_live = isinstance(subject, dm.DynamicCoreset)
    page = checked(page_of(subject) if is_live else report_html(subject, title=name))
    for sentence in sentences:
        assert sentence in page.text


def test_a_large_page_is_small_enough():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 54))
    y = rng.choice([-1, 1], size=8000)
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=4000, n_outliers=800, random_state=0)
    assert len(report_html(core, title="t").encode()) < 1.5e6


def test_no_drawing_package_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    checked(report_html(logistic_core(), title="t"))
