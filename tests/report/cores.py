"""Coresets to write pages about, and what a page is made of."""

from __future__ import annotations

import functools
import html.parser

import numpy as np

import duramen as dm
from tests.conformance.cases import CASES

NASTY = "<script>alert('x')</script>\"&\x00\ud800"
SECTIONS = (
    "contents", "suspects", "picture", "losses", "error-bars", "certificate", "layers", "weights", "anchor",
)  # fmt: skip
VOID = {"meta", "br", "hr", "img", "link", "input"}


@functools.cache
def core_of(case, sampler="uniform", dtype=np.float64, n_outliers=8):
    """Make a coreset of 60 rows for 300 points, from an anchor that is not a solution."""
    X, y = case.data(seed=1, n=300)
    X[:5] *= 3
    theta = case.theta(np.random.default_rng(2))
    asked = {"loss": case.loss, "size": 60, "n_outliers": n_outliers, "sampler": sampler, "random_state": 0}
    return dm.robust_coreset(X.astype(dtype), y, anchor=dm.Anchor(theta, radius=0.01), **asked)


def case_of(name):
    return next(case for case in CASES if case.name == name)


class Page(html.parser.HTMLParser):
    """What a browser would find: raises where tags do not match."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.ids, self.links = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src", "srcset", "action", "data")]
        assert not any(name.startswith("on") for name in names), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> where another is open"

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())
