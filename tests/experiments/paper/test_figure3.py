"""Figure 3(a) and (b): what the page and the pictures say of the figures."""

import numpy as np
import pytest
from experiments.paper.data import made_up_covertype
from experiments.paper.experiment import Results, run
from experiments.paper.figure3 import SIZES, Figure3
from experiments.paper.pages import SAMPLERS

from tests.support import tables

WAYS = [*SAMPLERS, *(f"{method}+" for method in SAMPLERS), "default", "two rounds"]


@pytest.fixture(scope="module")
def experiment():
    return Figure3(made_up_covertype(4100), 80, 500, trials=2)


def results(experiment, ratio):
    """Make trials whose loss ratios are known; accuracy falls as the loss rises."""
    records = {}
    for seed in range(experiment.trials):
        fits = {}
        for way in WAYS:
            for size in experiment.sizes:
                loss = ratio(way, size) + 0.01 * seed
                fits[f"{way} {size}"] = {"loss": 2 * loss, "accuracy": 0.8 - (loss - 1) / 10}
        records[f"trial {seed}"] = {"full": {"loss": 2.0, "accuracy": 0.8}, "fits": fits}
    return Results(records, ("a machine",))


def test_a_coreset_is_at_most_half_of_the_rows(experiment):
    assert experiment.sizes == (250, 500, 1000)
    assert Figure3(made_up_covertype(40_000)._replace(), 80, 500).sizes == SIZES


def test_tables_hold_means_and_the_worst(experiment):
    found = results(experiment, lambda way, size: 1 + len(way) / size)
    page = experiment.page(found, "the command")
    losses, points = (row[1:] for table in tables(page) for row in table if row[0] == "default")
    means = np.array([1 + 7 / size + 0.005 for size in experiment.sizes])
    assert losses == [f"{mean:.3f} ({mean + 0.005:.3f})" for mean in means]
    lost = 10 * (1 - means)
    assert points == [f"{mean:+.2f} ({mean - 0.05:+.2f})" for mean in lost]
    assert losses[0] in experiment.summary(found)
    assert "classified 80.00% correctly" in page


@pytest.mark.slow
def test_a_small_run(experiment, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    sizes = (1000, 1800)  # fewer rows take the paper's solver longer
    monkeypatch.setattr("experiments.paper.figure3.SIZES", sizes)
    once = Figure3(experiment.table, experiment.z, experiment.held_out, trials=1)
    found = run(once, tmp_path, command="the command")
    fits = found.of()[0]["fits"]
    assert set(fits) == {f"{way} {size}" for way in WAYS for size in sizes}
    assert fits["default 1800"]["loss"] < fits["default 1000"]["loss"]
    assert {one.name for one in tmp_path.iterdir()} == {
        *("figure3.json", "figure3.md", "figure3a.svg", "figure3a.png", "figure3b.svg", "figure3b.png")
    }
