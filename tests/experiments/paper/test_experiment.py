"""An experiment is done step by step, kept, and gone on with."""

import json

import pytest
from experiments.paper.experiment import Experiment, Step, run

PLAIN = {"command": "c", "plots": False}


class Count(Experiment):
    """Counts its steps, and may fail at one."""

    name = "count"

    def __init__(self, n=3, start=10, fails_at=None):
        self.n, self.start, self.fails_at, self.done = n, start, fails_at, []

    @property
    def settings(self):
        return {"start": self.start, "pair": (1, 2)}

    def steps(self):
        for number in range(self.n):
            yield Step(f"step {number}", lambda number=number: self._step(number))

    def _step(self, number):
        if number == self.fails_at:
            raise KeyboardInterrupt
        self.done.append(number)
        return {"value": self.start + number}

    def page(self, results, command):
        return f"{command}: {[one['value'] for one in results.of()]}\n![A line](line.svg)\n"

    def summary(self, results):
        return str(len(results.of()))

    def plots(self, results):
        return {"line": lambda figure: figure.subplots().plot([one["value"] for one in results.of()])}


def values(results):
    return [one["value"] for one in results.of()]


def test_results_page_and_pictures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    seen = []
    results = run(
        Count(), tmp_path, command="duramen paper", watch=lambda name, share: seen.append((name, share))
    )
    assert values(results) == [10, 11, 12]
    page = "duramen paper: [10, 11, 12]\n![A line](line.svg)\n"
    assert (tmp_path / "count.md").read_text() == page
    assert b"<svg" in (tmp_path / "line.svg").read_bytes()
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((tmp_path / "count.json").read_text())
    assert {name: one["found"] for name, one in kept["steps"].items()} == results.records
    assert [name for name, _ in seen] == ["step 0", "step 1", "step 2", "drawing"]
    assert [share for _, share in seen] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_what_was_interrupted_goes_on_and_nothing_is_done_again_unless_asked_for(tmp_path):
    first, second, more, fewer = Count(fails_at=2), Count(), Count(n=5), Count(n=2)
    with pytest.raises(KeyboardInterrupt):
        run(first, tmp_path, **PLAIN)
    assert not (tmp_path / "count.md").exists()
    assert values(run(second, tmp_path, **PLAIN)) == [10, 11, 12]
    assert (tmp_path / "count.md").read_text() == "c: [10, 11, 12]\n"  # no picture, and none is shown
    assert values(run(more, tmp_path, **PLAIN)) == [10, 11, 12, 13, 14]
    assert values(run(fewer, tmp_path, **PLAIN)) == [10, 11]
    assert [one.done for one in (first, second, more, fewer)] == [[0, 1], [2], [3, 4], []]
    with pytest.raises(KeyboardInterrupt):
        run(Count(start=20, fails_at=0), tmp_path, fresh=True, **PLAIN)
    again = Count()  # what was thrown away does not come back, nor do settings without results
    assert values(run(again, tmp_path, **PLAIN)) == [10, 11, 12]
    assert again.done == [0, 1, 2]


def test_a_folder_that_cannot_be_written_to_is_noticed_before_the_first_step(tmp_path):
    experiment = Count()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        run(experiment, tmp_path / "nowhere", **PLAIN)
    assert experiment.done == []


@pytest.mark.parametrize(
    ("version", "start", "message"),
    [
        ("9.9", 10, r"duramen '.*' and not '9\.9'"),
        (None, 20, r"other settings \(start 10 and not 20\); take --fresh .* or another"),
    ],
)
def test_other_results_are_not_mixed_and_left_alone(tmp_path, monkeypatch, version, start, message):
    run(Count(), tmp_path, **PLAIN)
    if version:
        monkeypatch.setattr("experiments.paper.experiment.__version__", version)
    check_refused(tmp_path, Count(start=start), message)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"format": 1, "settings": {}, "steps": {"step 0": 3}}',
        '{"format": 99, "experiment": "count", "settings": {}, "steps": {}}',
        '{"format": 1, "experiment": "other", "settings": {}, "steps": {}}',
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path, text):
    (tmp_path / "count.json").write_text(text)
    check_refused(tmp_path, Count(), "--fresh")


def check_refused(folder, experiment, message):
    """Check that nothing is done, and the file stays as it is."""
    before = (folder / "count.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        run(experiment, folder, **PLAIN)
    assert experiment.done == []
    assert (folder / "count.json").read_bytes() == before
