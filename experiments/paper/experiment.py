"""An experiment in steps, each saved as soon as it is done, so that an interrupted run can continue."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from duramen import __version__
from duramen.extras import needed
from duramen.files import replacing
from experiments.paper.pages import machine

__all__ = ["Experiment", "InTrials", "Plots", "Records", "Results", "Step", "run", "save_picture"]

Records = dict[str, Any]
"""What steps found, by their names; JSON's types only."""

Plots = dict[str, Callable[[Any], None]]
"""Pictures by the names of their files; each draws on a figure of matplotlib."""

_FORMAT = 1
_DPI = 150


class Step(NamedTuple):
    """A part of an experiment: its name, and what it does."""

    name: str
    run: Callable[[], Records]


class Experiment(ABC):
    """One table or figure: steps that find figures, and how these are shown."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def settings(self) -> Records:
        """What determines the figures, apart from the machine; JSON types only."""

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """List the steps, in their order."""

    @abstractmethod
    def page(self, results: Results, command: str) -> str:
        """Write the Markdown page."""

    @abstractmethod
    def summary(self, results: Results) -> str:
        """Write what is printed at the end."""

    def plots(self, results: Results) -> Plots:
        """Name the pictures, and how to draw each; none by default."""
        return {}


class InTrials(Experiment):
    """An experiment whose steps are trials that differ in their seeds alone, from 0 on."""

    trials: int

    def steps(self) -> Iterator[Step]:
        for seed in range(self.trials):
            yield Step(f"trial {seed}", partial(self._trial, seed))

    @abstractmethod
    def _trial(self, seed: int) -> Records:
        """Run one trial."""


@dataclass(frozen=True)
class Results:
    """What the steps of an experiment found, and where they ran."""

    records: Records
    machines: tuple[str, ...]

    def of(self) -> list[Records]:
        """Return the records of all steps, in their order."""
        return list(self.records.values())

    def where(self) -> str:
        """Report on what they ran; several machines, if it was not the same throughout."""
        return "; and ".join(self.machines)


def run(
    experiment: Experiment,
    folder: Path,
    *,
    command: str,
    fresh: bool = False,
    plots: bool = True,
    watch: Callable[[str, float], None] = lambda _name, _share: None,
) -> Results:
    """Do what is not yet done, and write results, page and pictures.

    Parameters
    ----------
    experiment : Experiment
    folder : Path
        Gets NAME.json, NAME.md and the pictures.
    command : str
        What the page says it was made by.
    fresh : bool
        Whether to do all steps again.
    plots : bool
        Whether to draw pictures.
    watch : callable
        Called with the name of each step and the share that is done.

    Raises
    ------
    ValueError
        If the folder has results of other settings, or an invalid file.
    """
    if plots:
        _pyplot()
    file = folder / f"{experiment.name}.json"
    kept = {} if fresh else _kept(file, experiment)
    _write(file, json.dumps(_document(experiment, kept), indent=1))  # a full disk shows before the first step
    steps = list(experiment.steps())
    for number, step in enumerate(steps):
        watch(step.name, number / len(steps))
        if step.name not in kept:
            here, start = machine(), time.perf_counter()
            found = step.run()
            kept[step.name] = {"machine": here, "seconds": time.perf_counter() - start, "found": found}
            _write(file, json.dumps(_document(experiment, kept), indent=1))
    watch("drawing", 1.0)
    wanted = {step.name: kept[step.name] for step in steps}
    results = Results({name: one["found"] for name, one in wanted.items()}, _machines(wanted))
    page = experiment.page(results, command)
    if not plots:
        page = "".join(line for line in page.splitlines(keepends=True) if not line.startswith("!["))
    _write(folder / f"{experiment.name}.md", page)
    if plots:
        for name, draw in experiment.plots(results).items():
            save_picture(folder / name, draw)
    return results


def _machines(steps: Records) -> tuple[str, ...]:
    """Name every machine once, with how busy it was before its steps, which differs from one to the next."""
    loads: dict[tuple[str, str], list[float]] = {}
    for one in steps.values():
        place, found, rest = str(one["machine"]).partition(", load average ")
        load, _, versions = rest.partition(" before the run")
        key = (place, versions) if found else (place, "")
        loads.setdefault(key, []).extend([float(load)] if found else [])
    return tuple(
        place + (f", load average {min(seen)} to {max(seen)} before a step" if seen else "") + versions
        for (place, versions), seen in loads.items()
    )


def _settings(experiment: Experiment) -> Records:
    return dict(json.loads(json.dumps({**experiment.settings, "duramen": __version__})))


def _document(experiment: Experiment, kept: Records) -> Records:
    about = {"format": _FORMAT, "experiment": experiment.name, "settings": _settings(experiment)}
    return {**about, "steps": kept}


def _kept(file: Path, experiment: Experiment) -> Records:
    """Read what was found before, if it is of these settings."""
    if not file.exists():
        return {}
    way_out = "take --fresh to do it again, or another folder with --out"
    try:
        document = json.loads(file.read_text())
        known, settings, steps = document["format"], dict(document["settings"]), dict(document["steps"])
        whole = all({"machine", "found"} <= set(one) for one in steps.values())
    except (ValueError, LookupError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(f"{file} is damaged, or none of ours; {way_out}")
    if known != _FORMAT or document.get("experiment") != experiment.name:
        raise ValueError(f"{file} is of another experiment or version; {way_out}")
    wanted = _settings(experiment)
    if steps and settings != wanted:
        names = [name for name in {**settings, **wanted} if settings.get(name) != wanted.get(name)]
        differ = ", ".join(f"{name} {settings.get(name)!r} and not {wanted.get(name)!r}" for name in names)
        raise ValueError(f"{file} has results of other settings ({differ}); {way_out}")
    return steps


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def _pyplot() -> Any:
    return needed("matplotlib.figure", "a picture", "plot")


def save_picture(path: Path, draw: Callable[[Any], None]) -> None:
    """Draw, and write the picture as SVG with its text as text, and as PNG."""
    matplotlib = needed("matplotlib", "a picture", "plot")
    fixed = {"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 10}
    with matplotlib.rc_context(fixed):
        figure = _pyplot().Figure(layout="constrained")
        draw(figure)
        for suffix, more in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": _DPI})):
            with replacing(path.with_suffix(suffix)) as file:
                figure.savefig(file, format=suffix[1:], facecolor="white", **more)
