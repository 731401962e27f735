"""Build a coreset in two passes over parts of the data, by plans and mergeable summaries."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from duramen.arrays import Array, numbered
from duramen.coreset import Coreset
from duramen.coreset.candidates import Candidates, Collector, InlierState, RankedPoints, View, choose
from duramen.coreset.exact import ExactSums
from duramen.coreset.first_pass import FirstPass, FirstPassResult, Form
from duramen.coreset.settings import BySize, plan_of
from duramen.coreset.view import (
    SAMPLE,
    anchored_points,
    as_anchor,
    check_plan,
    find_anchor_and_sampler,
    is_bare,
    sampler_of,
)
from duramen.coreset.wire import pack, packed_points, unpack, unpacked_points
from duramen.losses.base import Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers import AnchoredPoints, RankedSampler, Sampler
from duramen.samplers.calibration import calibration_features
from duramen.seeds import generator
from duramen.trimming import outlier_weight

__all__ = ["Plan", "Summarizer", "Summary", "finish", "from_bytes", "merge", "plan", "summarize", "to_bytes"]


_SHORT = np.iinfo(np.int16).max


def to_bytes(body: FirstPassResult | Candidates, fingerprint: str) -> bytes:
    """Turn what a pass tells into bytes; ``fingerprint`` says by which plan it was made."""
    facts = {"plan": fingerprint, "rows": body.n_rows, "points": body.n_points}
    if isinstance(body, FirstPassResult):
        facts |= {"kind": "census", "form": body.form, "classes": body.classes}
        arrays = {"weight": _array(body.weight), **_held(body.kept)}
        return pack(facts, arrays)
    inliers = body.inliers
    facts |= {"kind": "selection", "stratified": inliers.stratified}
    arrays = {"strata": inliers.numbers, "counts": inliers.counts, "weights": _array(inliers.weights)}
    if inliers.totals is not None:
        arrays["totals"] = _array(inliers.totals)
    arrays |= _held(inliers.kept)
    if inliers.kept is not None and inliers.stratified:
        short = np.int16 if len(inliers.numbers) <= _SHORT else np.int32
        arrays["places"] = np.searchsorted(inliers.numbers, inliers.kept.strata).astype(short)
    if body.suspects is not None:
        arrays |= packed_points(body.suspects.points, "suspects")
        arrays["losses"] = np.asarray(body.suspects.losses)
    return pack(facts, arrays)


def from_bytes(data: bytes, view: View | None) -> tuple[str, FirstPassResult | Candidates]:
    """Read the fingerprint of the plan, and what a pass tells."""
    facts, arrays = unpack(data)
    fingerprint, n_rows, n_points = facts["plan"], facts["rows"], facts["points"]
    points = unpacked_points(arrays, "held")
    if facts["kind"] == "census":
        form = None if facts["form"] is None else Form(*facts["form"])
        held = (
            None
            if points is None
            else RankedPoints(points, arrays["ranks"], np.zeros(len(points), dtype=np.int8))
        )
        weight = _sums(arrays["weight"])
        return fingerprint, FirstPassResult(n_rows, n_points, weight, form, tuple(facts["classes"]), held)
    strata = arrays["strata"]
    held = None
    if points is not None:
        places = arrays.get("places", np.zeros(len(points), dtype=np.int16))
        held = RankedPoints(points, arrays["ranks"], strata[places])
    totals = _sums(arrays["totals"]) if "totals" in arrays else None
    weights = _sums(arrays["weights"])
    inliers = InlierState(strata, arrays["counts"], weights, totals, facts["stratified"], held)
    suspects = None
    outer = unpacked_points(arrays, "suspects")
    if outer is not None and view is not None:
        suspects = AnchoredPoints(outer, view.loss, view.anchor, arrays["losses"])
    return fingerprint, Candidates(n_rows, n_points, suspects, inliers)


def _held(held: RankedPoints | None) -> dict[str, Array]:
    return {} if held is None else {**packed_points(held.points, "held"), "ranks": held.ranks}


def _array(sums: ExactSums) -> Array:
    return np.frombuffer(sums.to_bytes(), dtype=np.uint8)


def _sums(array: Any) -> ExactSums:
    return ExactSums.from_bytes(np.asarray(array).tobytes())


@dataclass(frozen=True, eq=False)
class PassSettings:
    """What was asked for."""

    loss: Loss
    plan: BySize
    sampler: Sampler | None
    n_outliers: float
    calibrate: bool
    seed: int
    anchor: Any
    columns: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class Plan:
    """What to do with every batch in one pass: hand it to all who hold some of the data.

    Made by :func:`plan` for the first pass, and by :func:`finish` for the next one.
    It can be pickled, and holds nothing but the problem, the anchor and a few numbers.

    Attributes
    ----------
    number : int
        Of the pass, from 1.
    """

    number: int
    problem: PassSettings = field(repr=False)
    first_pass: FirstPassResult | None = field(default=None, repr=False)
    view: View | None = field(default=None, repr=False)
    limit: float = field(default=np.inf, repr=False)
    fingerprint: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", self.fingerprint or _mark(self))

    def expecting(self, n_rows: int) -> Plan:
        """Plan for so many rows of weight 1 over all parts: of the sample each then sends but its share.

        Should there be fewer, the pass is made again.
        """
        enough = SAMPLE + 1 + 6 * SAMPLE**0.5 + 40
        return replace(self, limit=enough / n_rows if n_rows > enough else np.inf, fingerprint="")


@dataclass(frozen=True, eq=False)
class Summary:
    """What a pass tells of some of the rows: mergeable, and small however many they are.

    Attributes
    ----------
    plan : Plan
    body : FirstPassResult or Candidates
    """

    plan: Plan
    body: FirstPassResult | Candidates = field(repr=False)

    @property
    def n_rows(self) -> int:
        """How many rows it is a summary of."""
        return self.body.n_rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Summary) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Summary of {self.n_rows:,} rows in pass {self.plan.number}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Summary.from_bytes, (self.to_bytes(), self.plan)

    def to_bytes(self) -> bytes:
        """Return it as bytes, without the plan: format 1, with a checksum, the same on every machine."""
        return to_bytes(self.body, self.plan.fingerprint)

    @classmethod
    def from_bytes(cls, data: bytes, plan: Plan) -> Summary:
        """Read what :meth:`to_bytes` returned, of a summary made by this plan.

        Raises
        ------
        ValueError
            If it is something else, damaged, of a newer format, or was made by another plan.
        """
        fingerprint, body = from_bytes(data, plan.view)
        if fingerprint != plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        return cls(plan, body)


_OTHER_PLAN = (
    "these summaries were made by different plans, so they do not go together; hand one plan to all who "
    "summarize in a pass"
)


def plan(
    *,
    loss: Loss,
    size: int,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    anchor: Any = None,
    calibrate: bool = True,
    random_state: Any = None,
    columns: Sequence[str] | None = None,
    beta: float | None = None,
) -> Plan:
    """Plan the first pass over data that no one machine has, or can hold.

    Parameters
    ----------
    loss, size, n_outliers, sampler, suspects, anchor, calibrate, random_state, beta
        As for :func:`duramen.robust_coreset`; a sampler must score each point by itself.
    columns : sequence of str, optional
        The names of the columns, for the coreset to keep.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.
    """
    by_size = plan_of(size, None, beta, 0.1, suspects)
    if not isinstance(by_size, BySize):
        raise TypeError("data that is read in passes needs size=, the number of rows to choose")
    if not isinstance(calibrate, (bool, np.bool_)):
        raise TypeError(f"calibrate={calibrate!r} must be True or False")
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a Loss, such as dm.LogisticLoss(); found {loss!r}")
    named = sampler_of(sampler, by_size)
    if named is not None:
        _ranked(named)
    whole = isinstance(n_outliers, (int, float, np.integer, np.floating)) and n_outliers >= 1
    outlier_weight(n_outliers, 2.0 * float(n_outliers) if whole else 1.0)  # what total there is, nobody knows
    if anchor is not None:
        as_anchor(anchor)
    check_plan(by_size, 0.0, is_bare(anchor), named)
    seed = int(generator(random_state).integers(2**63))
    names = None if columns is None else tuple(columns)
    return Plan(1, PassSettings(loss, by_size, named, n_outliers, bool(calibrate), seed, anchor, names))


class Summarizer:
    """A summary under way: one that takes in batch after batch, in less time than merging summaries takes.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        problem, view = plan.problem, plan.view
        self._work: FirstPass | Collector
        if view is None:
            self._work = FirstPass(problem.loss, problem.seed, plan.limit)
        else:
            self._work = Collector(view)

    @property
    def n_rows(self) -> int:
        """How many rows have come."""
        return self._work.n_rows

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Take in some rows; an error names one by its number among those here and the ``before`` others."""
        if not isinstance(points, WeightedPoints):
            raise TypeError(
                f"a batch must be points, made with dm.points(X, y); found {type(points).__name__}"
            )
        if len(points):
            with numbered(self.n_rows if before is None else before):
                self._work.add(points)

    def absorb(self, summary: Summary) -> None:
        """Take in what a summary by the same plan has."""
        if summary.plan.fingerprint != self._plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        self._work.absorb(summary.body)  # type: ignore[arg-type]

    def summary(self) -> Summary:
        """Give the summary of all that has come; nothing more may come then."""
        return Summary(self._plan, self._work.summary())


@one_blas_thread()
def summarize(batch: WeightedPoints | Iterable[WeightedPoints], plan: Plan) -> Summary:
    """Summarize some of the rows, as a pass needs them.

    Parameters
    ----------
    batch : WeightedPoints, or an iterable of them
        With ids that are distinct over all batches. None at all is fine.
    plan : Plan

    Returns
    -------
    Summary

    Raises
    ------
    TypeError, ValueError
        If the loss cannot take a row; it is named by its number in this batch.
    """
    if not isinstance(plan, Plan):
        raise TypeError(
            f"a batch is summarized by a Plan, from plan() or finish(); found {type(plan).__name__}"
        )
    tally = Summarizer(plan)
    for points in [batch] if isinstance(batch, WeightedPoints) else batch:
        tally.add(points)
    return tally.summary()


@one_blas_thread()
def merge(a: Summary, b: Summary) -> Summary:
    """Make the summary of the rows of two, which have none in common; neither changes.

    Associative and commutative, and an empty summary changes nothing. All sums are
    exact, so that however many are merged in whatever tree, the bytes are the same.
    """
    for one in (a, b):
        _check_summary(one)
    tally = Summarizer(a.plan)
    for one in (a, b):
        tally.absorb(one)
    return tally.summary()


@one_blas_thread()
def finish(summary: Summary) -> Plan | Coreset:
    """Go on from the summary of all rows: the plan of the next pass, or the coreset.

    There are two passes: the first counts, and samples an anchor; the second
    chooses. (With a probability below 2e-8 the sample misjudges how large the
    largest losses are; then there is a third.)

    Raises
    ------
    ValueError
        If there are no rows, or those of the second pass are not those of the first.
    """
    _check_summary(summary)
    made_by, body = summary.plan, summary.body
    if isinstance(body, FirstPassResult):
        if made_by.limit < np.inf and body.is_short:
            return replace(made_by, limit=np.inf, fingerprint="")
        return _second(made_by, body)
    counted, view, problem = made_by.first_pass, made_by.view, made_by.problem
    assert counted is not None
    assert view is not None
    if (body.n_rows, body.n_points) != (counted.n_rows, counted.n_points):
        raise ValueError(
            f"there were {counted.n_rows:,} rows in the first pass, {counted.n_points:,} of them with a "
            f"weight, and {body.n_rows:,} and {body.n_points:,} in pass {made_by.number}; every pass must "
            "meet the same points"
        )
    z = outlier_weight(problem.n_outliers, counted.total)
    core = choose(body, view, n_outliers=z, columns=problem.columns)
    if core is not None:
        return core
    return Plan(made_by.number + 1, problem, counted, replace(view, floor=-np.inf))


def _check_summary(found: Any) -> None:
    if not isinstance(found, Summary):
        hint = "; Summary.from_bytes(data, plan) makes one of bytes" if isinstance(found, bytes) else ""
        raise TypeError(f"summaries are merged and finished; found {type(found).__name__}{hint}")


def _second(first: Plan, census: FirstPassResult) -> Plan:
    """Find the anchor, and plan to look from there."""
    problem, sample = first.problem, census.sample()
    loss, by_size = problem.loss, problem.plan
    z = outlier_weight(problem.n_outliers, census.total)
    place, chooser = find_anchor_and_sampler(
        problem.anchor,
        sample,
        loss,
        by_size,
        problem.sampler,
        z=z,
        total=census.total,
        n_points=census.n_points,
        seed=problem.seed,
    )
    known = calibration_features(loss, place, by_size.size, sample) if problem.calibrate else None
    suspected = by_size.suspected_of(z, census.total)
    losses = anchored_points(place, sample, loss, cached=False)[0].losses
    floor = _floor(losses, sample, suspected / census.total)
    view = View(loss, place, _ranked(chooser), problem.seed, by_size, suspected, floor, known)
    return Plan(2, problem, replace(census, kept=None), view)


def _floor(losses: Any, sample: WeightedPoints, share: float) -> float:
    """Find a loss that the suspected exceed, all of them, as good as certainly: from a sample of all losses.

    Its rank among the largest is six standard deviations beyond what is expected.
    """
    effective = 1 / float(np.square(sample.weights / sample.total_weight).sum())
    share = share + 6 * (share / effective) ** 0.5 + 40 / effective
    if not share < 0.5:
        return -np.inf
    order = np.argsort(losses)[::-1]
    heavy = np.cumsum(sample.weights[order]) / sample.total_weight
    floor = float(losses[order[min(int(np.searchsorted(heavy, share)), len(order) - 1)]])
    return floor if np.isfinite(floor) else -np.inf


def _ranked(sampler: Sampler) -> RankedSampler:
    """Raise TypeError unless a sampler scores each point by itself."""
    if isinstance(sampler, RankedSampler):
        return sampler
    raise TypeError(
        f"{sampler!r} must be handed all points at once; data that comes in parts needs a sampler that "
        "scores each point by itself: take 'uniform', 'layered', 'leverage' or 'sensitivity', or a "
        "dm.RankedSampler of your own"
    )


def _mark(plan: Plan) -> str:
    """Make what tells a plan from others."""
    problem, view = plan.problem, plan.view
    words: list[Any] = [plan.number, plan.limit, problem.seed, problem.plan]
    words += [problem.calibrate, problem.n_outliers]
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8)
    digest.update(_told(problem.loss) + _told(problem.sampler))
    if view is not None:
        digest.update(view.anchor.theta.tobytes())
        for name, state in sorted(view.anchor.frozen.items()):
            digest.update(name.encode() + state.tobytes())
        digest.update(_told(view.sampler) + repr((view.suspected, view.floor)).encode())
    return digest.hexdigest()


def _told(part: Any) -> bytes:
    """Turn a loss or a sampler into bytes that tell it from others, as far as it can be told."""
    try:
        return pickle.dumps(part, protocol=4)
    except Exception:  # whatever a class of the user's own may raise
        return type(part).__qualname__.encode()
