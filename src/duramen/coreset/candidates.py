"""What a pass over data in batches collects, mergeable in any order, and what is chosen from after it.

The second pass collects candidates: the points of the largest losses, the smallest ranks of all others,
and exact totals over those. The first pass does the same without losses: it ranks points by their weights
alone, and the smallest ranks are the sample that an anchor is found on.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from duramen.arrays import Array, refuse_nonfinite
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import (
    SAMPLE,
    Scored,
    Settings,
    View,
    check_finite,
    largest_losses,
    sample_of,
)
from duramen.coreset.wire import Arrays, arrays_of, decoding, pack, points_of, require, unpack
from duramen.errors import RowError, rows_from
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    OF_A_CLASS,
    AnchoredPoints,
    RankedRows,
    RankedSampler,
    Strata,
    ranked_rows,
)
from duramen.trimming import check_points


class KeyedPoints(NamedTuple):
    """Points, the number by which each is kept (a loss or a rank), and the stratum of each."""

    points: WeightedPoints
    keys: Array
    strata: Array

    def take(self, rows: Array) -> KeyedPoints:
        """Copy the points numbered ``rows``, which must be distinct."""
        points = self.points.take_unchecked(rows, self.points.weights[rows])
        return KeyedPoints(points, self.keys[rows], self.strata[rows])

    @staticmethod
    def concat(parts: Sequence[KeyedPoints]) -> KeyedPoints:
        """Join the points of several batches; raise ValueError if an id occurs in two of them."""
        points, keys, strata = zip(*([part for part in parts if len(part.keys)] or parts), strict=True)
        try:
            return KeyedPoints(WeightedPoints.concat(points), np.concatenate(keys), np.concatenate(strata))
        except RowError as error:
            name = error.values["id"]
            raise ValueError(f"ids must be distinct; id {name} occurs in more than one row") from None


_NO_POINTS = KeyedPoints(WeightedPoints([[0.0]]), np.zeros(1), np.zeros(1, np.int8)).take(np.arange(0))


@final
class Buffer:
    """Points of which some are kept: new ones wait until they are as many, and then all are cut together.

    What is kept depends on the points that arrived, not on their order or batches. ``select`` finds the rows
    to keep; the others are passed to ``release``. ``least`` points may wait in any case.
    """

    def __init__(
        self,
        select: Callable[..., Array],
        least: int,
        release: Callable[[KeyedPoints], None] | None = None,
    ) -> None:
        self._select, self._least, self._release = select, least, release
        self._parts = [_NO_POINTS]  # those left by the last cut, and those added since
        self._n_waiting = 0

    def add(self, part: KeyedPoints) -> None:
        """Add points that may be kept."""
        self._parts.append(part)
        self._n_waiting += len(part.keys)
        if self._n_waiting > max(len(self._parts[0].keys), self._least):
            self.cut()

    def cut(self) -> KeyedPoints:
        """Keep no more points than are needed; return them, sorted by id."""
        if self._n_waiting:
            whole = KeyedPoints.concat(self._parts)
            rows = self._select(*whole)
            self._parts = [whole.take(rows[np.argsort(whole.points.ids[rows])])]
            self._n_waiting = 0
            if self._release is not None:
                self._release(whole.take(np.delete(np.arange(len(whole.keys)), rows)))
        return self._parts[0]


def form_of(points: WeightedPoints) -> str:
    """Describe the format of points, which all batches share."""
    kind = f"{'sparse ' if sparse.issparse(points.X) else ''}{points.X.dtype}"
    return f"{points.n_columns} columns of {kind}, {'with' if points.y is not None else 'without'} labels"


_OTHER_PLAN = (
    "these summaries were made by different plans, so they cannot be merged; use one plan for all "
    "summaries of a pass"
)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What to do with every batch in one pass: send it to every machine that has some of the data.

    Made by :func:`plan` for the first pass, and by :func:`finish` for the next one.
    It can be pickled, and contains only the problem, the anchor and a few numbers.

    Attributes
    ----------
    number : int
        The number of the pass, from 1.
    """

    number: int
    problem: Settings
    view: View
    columns: tuple[str, ...] | None
    expected: tuple[int, int] | None = None  # rows, and those with weight
    suspected: float = 0.0  # the weight to suspect of all data
    floor: float = -np.inf  # a loss below which no point is suspected
    limit: float = np.inf  # a rank that no point of the first pass's sample exceeds, almost certainly
    fingerprint: str = field(init=False)  # a hash that distinguishes it from other plans

    def __post_init__(self) -> None:
        problem, view = self.problem, self.view
        words = [self.number, problem.seed, problem.plan, problem.calibrate, problem.n_outliers]
        words += [self.suspected, self.floor, self.limit]
        parts = [repr(words).encode(), *map(_as_bytes, (problem.loss, problem.chooser, view.sampler))]
        states = sorted({**view.anchor.frozen, "": view.anchor.theta}.items())
        parts += [name.encode() + state.tobytes() for name, state in states]
        vars(self).update(fingerprint=hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest())

    def __repr__(self) -> str:
        return f"Plan(number={self.number})"

    def expecting(self, n_rows: int) -> Plan:
        """Plan for ``n_rows`` rows of weight 1 over all parts: each then sends only its share of the sample.

        If there are fewer, the pass is repeated.
        """
        enough = SAMPLE + 6 * SAMPLE**0.5 + 41
        return replace(self, limit=enough / n_rows if n_rows > enough else np.inf)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """The result of a pass over some of the rows: mergeable, and small however many they are.

    Attributes
    ----------
    plan : Plan
        What was done with them.
    n_rows : int
        The number of rows.
    form : str or None
        Their format; None where there are none.
    classes : tuple of float
        The smallest and the largest label, for a loss that classifies.
    suspects : KeyedPoints
        The points that may be suspected, with their losses, sorted by id. All others are inliers.
    numbers, counts : arrays
        The numbers of the inliers' strata, in ascending order, and how many points each has.
    weights : ExactSums
        The weight of each stratum.
    totals : ExactSums
        Over the inliers, of the features that weights are calibrated to.
    kept : KeyedPoints
        The inliers of the smallest ranks of each stratum, sorted by id, with the numbers of their strata;
        where strata are classes, those of the smallest ranks of all, and a few of each.
    """

    plan: Plan
    n_rows: int
    form: str | None
    classes: tuple[float, ...]
    suspects: KeyedPoints
    numbers: Array
    counts: Array
    weights: ExactSums
    totals: ExactSums
    kept: KeyedPoints

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Summary) and self.to_bytes() == other.to_bytes()

    def __repr__(self) -> str:
        return f"Summary of {self.n_rows:,} rows in pass {self.plan.number}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Summary.from_bytes, (self.to_bytes(), self.plan)

    @property
    def n_points(self) -> int:
        """The number of points of positive weight."""
        return int(self.counts.sum()) + len(self.suspects.keys)

    @property
    def total(self) -> float:
        """The total weight of all points; raise ValueError if it is not finite."""
        total = self.weights.total()
        total.add_rows(self.suspects.points.weights)
        if not np.isfinite(total.values):
            raise ValueError("weights add up to infinity; scale them down")
        return float(total.values)

    def sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight, as ``anchor_sample`` does in memory."""
        if not self.n_rows:
            raise ValueError("there are no points; at least one row is needed")
        if not len(self.kept.keys):
            raise ValueError("all weights are zero; pass some positive weights")
        return sample_of(self.kept.points, self.kept.keys)

    def to_bytes(self) -> bytes:
        """Return the bytes of the summary, without the plan: the same on every machine."""
        arrays = {"strata": self.numbers, "counts": self.counts, "weights": self.weights.parts()}
        if len(self.totals):
            arrays["totals"] = self.totals.parts()
        for name, part in (("kept", self.kept), ("suspects", self.suspects)):
            if len(part.keys):
                arrays |= {f"{name}.keys": part.keys, **arrays_of(part.points, name)}
        if len(self.numbers) > 1:
            short = np.min_scalar_type(-len(self.numbers))  # of signed integers
            arrays["places"] = np.searchsorted(self.numbers, self.kept.strata).astype(short)
        facts = {"plan": self.plan.fingerprint, "rows": self.n_rows, "form": self.form}
        return pack({**facts, "classes": self.classes}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, plan: Plan) -> Summary:
        """Read what :meth:`to_bytes` returned; refuse anything that this plan cannot have made."""
        facts, arrays = unpack(data)
        if facts.get("plan") != plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        with decoding():
            view = plan.view
            numbers, counts, n_rows = arrays["strata"], arrays["counts"], facts["rows"]
            n = len(numbers)
            whole = numbers.dtype == counts.dtype == np.int64 and counts.shape == numbers.shape == (n,)
            require(whole and (numbers[1:] > numbers[:-1]).all() and (counts > 0).all(), "its strata")
            weights, totals = ExactSums.of_parts(arrays["weights"], n), ExactSums(0)
            if view.features is not None:
                totals = ExactSums.of_parts(arrays["totals"], view.features.n_columns)
            form = facts["form"]
            kept, suspects = (_read_points(arrays, name, form, view) for name in ("kept", "suspects"))
            n_points = sum(counts.tolist()) + len(suspects.keys)
            require(type(n_rows) is int and n_points <= n_rows < 2**63, "its number of rows")
            places = arrays["places"] if n > 1 else np.zeros(len(kept.keys), np.int64)
            require((places < n).all() and (kept.keys < np.inf).all(), "its strata")
            n_kept, heavy = (np.bincount(places, of, minlength=n) for of in (None, kept.points.weights))
            require(((n_kept <= counts) & ((n_kept > 0) | (plan.limit < np.inf))).all(), "its counts")
            require((heavy / (1 + 1e-9) <= weights.values).all(), "the weights of its strata")
            kept = kept._replace(strata=numbers[places])
            labels = tuple(map(float, facts["classes"][:2]))
            return cls(plan, n_rows, form, labels, suspects, numbers, counts, weights, totals, kept)


def _read_points(arrays: Arrays, name: str, form: str, view: View) -> KeyedPoints:
    """Restore points of positive weight, sorted by id, that the loss accepts."""
    if f"{name}.keys" not in arrays:
        return _NO_POINTS
    points, keys = points_of(arrays, name), arrays[f"{name}.keys"]
    require(keys.shape == points.ids.shape and keys.dtype.kind == "f", name)
    require(((keys >= 0) & (points.weights > 0)).all() and (points.ids[1:] > points.ids[:-1]).all(), name)
    require(form_of(points) == form and not (points.y is None and view.loss.needs_labels), "its form")
    if not view.blind:
        view.loss.check_parameters(view.anchor.theta, points.n_columns)
    if points.y is not None:
        view.loss.check_labels(points.y)
    return KeyedPoints(points, keys, np.zeros(len(keys), np.int8))


MARGIN = 1e-6  # more than the relative rounding error of sums of weights


@final
class Summarizer:
    """A summary in progress, to which batches are added; faster than merging a summary of each.

    By a ``margin`` more weight is suspected than must be, as rows are not all here yet.
    """

    def __init__(self, plan: Plan, margin: float = MARGIN) -> None:
        self._plan = plan
        self._view = view = plan.view
        self._size = view.settings.by_size.size + 1  # the next rank gives the probabilities
        few = min(OF_A_CLASS, max(1, (self._size - 1) // 4)) + 1  # if there are two classes, or more
        self._quota = few if view.by_class else self._size  # of each stratum
        self._limit = np.inf if view.by_class else -np.inf  # of ranks, for all strata together
        # as points arrive, limits only move towards them: a point beyond cannot be kept
        self._weight, self._floor = plan.suspected * (1 + margin), plan.floor
        self._outer = Buffer(self._largest, self._size, self._release)
        self._lowest = Buffer(self._smallest, self._size)
        self._totals = ExactSums(0 if view.features is None else view.features.n_columns)
        self._index: dict[int, int] = {}  # of each stratum's number, in its count, weight, and limit of ranks
        self._counts, self._weights, self._limits = np.zeros(0, np.int64), ExactSums(0), np.empty(0)
        self._form: str | None = None
        self._classes: tuple[float, ...] = ()
        self.n_rows = 0

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add some rows; errors number rows from ``before``, or from the rows added so far."""
        view, loss = self._view, self._view.loss
        with rows_from(self.n_rows if before is None else before):
            check_points(points, loss)
            if not len(points):
                return
            y = points.y
            if view.blind:
                refuse_nonfinite(points.X)
                if y is not None:
                    loss.check_labels(y)
            classes = () if y is None or not loss.classifies else (float(y.min()), float(y.max()))
            self._admit(form_of(points), classes)
            scored = view.score(points, self._largest if self._weight else None)
        self._totals.add(scored.totals())
        self._add_inliers(scored)
        outer = scored.suspects().rows
        if len(outer):
            suspects = KeyedPoints(points, scored.inner.losses, np.zeros(len(points), np.int8))
            self._outer.add(suspects.take(outer))
        self.n_rows += len(points)

    def absorb(self, other: Summary) -> None:
        """Merge a summary by the same plan into this one."""
        if other.plan.fingerprint != self._plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        if other.form is not None:
            self._admit(other.form, other.classes)
        indices = self._count(other.numbers, other.counts)
        self._weights.absorb(other.weights, at=indices)
        self._totals.absorb(other.totals)
        points, ranks, numbers = other.kept
        self._rank(points, ranks, indices[np.searchsorted(other.numbers, numbers)])
        self._outer.add(other.suspects)
        self.n_rows += other.n_rows

    def _release(self, former: KeyedPoints) -> None:
        """Add former suspects to the inliers; what each contributes does not depend on the others."""
        if not len(former.keys):
            return
        points, view = former.points, self._view
        anchored = AnchoredPoints(points, view.loss, view.anchor, former.keys)
        check_finite(anchored)
        assert isinstance(view.sampler, RankedSampler)
        if view.features is not None:
            self._totals.add_rows(view.features.columns(points) * points.weights[:, None])
        self._add_inliers(ranked_rows(view.sampler, anchored, view.seed, steady=True))

    def summary(self) -> Summary:
        """Return the summary of all rows, the same in whatever order; no more may be added after it."""
        suspects = self._outer.cut()
        numbers = np.array(list(self._index), np.int64)
        order = np.argsort(numbers)
        order = order[self._counts[order] > 0]
        strata = numbers[order], self._counts[order], self._weights.take(order)
        kept = self._lowest.cut()
        kept = kept._replace(strata=numbers[kept.strata])
        rows = self.n_rows, self._form, self._classes
        return Summary(self._plan, *rows, suspects, *strata, self._totals, kept)

    def _admit(self, form: str, classes: tuple[float, ...]) -> None:
        """Raise ValueError unless rows of this form, with these labels, go together with earlier ones."""
        self._form = self._form or form
        if form != self._form:
            raise ValueError(
                f"batches do not match: some have {self._form}, others {form}; use one format for all"
            )
        if not classes:
            return
        loss, together = self._view.loss, sorted({*self._classes, *classes})
        try:
            loss.check_labels(np.array(together))
        except ValueError:
            raise ValueError(
                f"the labels of the batches do not match: {loss!r} does not take {together} together; "
                "use the same labels in all batches"
            ) from None
        self._classes = together[0], together[-1]

    def _add_inliers(self, ranked: RankedRows) -> None:
        points, strata, places = ranked.points, ranked.strata(), ranked.places
        indices = self._count(strata.numbers, strata.counts)
        for at, index in enumerate(indices.tolist(), 1):
            part = ExactSums()
            part.add_rows(points.weights if places is None else points.weights[places == at])
            self._weights.absorb(part, at=[index])
        if len(indices):
            one = np.broadcast_to(indices[0], len(points))
            self._rank(points, ranked.ranks, one if places is None else np.append(0, indices)[places])

    def _rank(self, points: WeightedPoints, ranks: Array, strata: Array) -> None:
        """Copy the points that may stay; an infinite rank means absence, strata are numbered from 0."""
        rows = self._smallest(points, ranks, strata)
        if len(rows):
            self._lowest.add(KeyedPoints(points, ranks, strata).take(rows))

    def _smallest(self, points: WeightedPoints, ranks: Array, strata: Array) -> Array:
        """Find the rows of the smallest ranks that may be needed, and those that tie with the last."""
        limits = self._limits[0] if len(self._limits) == 1 else self._limits[strata]
        rows = np.flatnonzero((ranks <= np.maximum(limits, self._limit)) & (ranks < np.inf))
        if len(rows) > self._size:
            ranks, strata = ranks[rows], strata[rows]
            for stratum in np.flatnonzero(np.bincount(strata) > self._quota):
                mine = np.partition(ranks[strata == stratum], self._quota - 1)
                self._limits[stratum] = mine[self._quota - 1]
            if self._view.by_class:
                self._limit = np.partition(ranks, self._size - 1)[self._size - 1]
            rows = rows[ranks <= np.maximum(self._limits[strata], self._limit)]
        return rows

    def _largest(self, points: WeightedPoints, losses: Array, strata: Any = None) -> Array:
        """Find the rows of the largest losses that may be suspected; the others are inliers for good."""
        rows = np.flatnonzero((losses >= self._floor) & (points.weights > 0))
        weights = points.weights[rows]
        heavy = weights.sum() > self._weight
        rows = rows[largest_losses(losses[rows], points.ids[rows], weights, self._weight)]
        if heavy:
            self._floor = max(self._floor, float(losses[rows].min(initial=np.inf)))
        return rows

    def _count(self, numbers: Array, counts: Array) -> Array:
        """Add to the counts of strata; return their indices: a new stratum gets the next one."""
        index = self._index
        indices = np.array([index.setdefault(number, len(index)) for number in numbers.tolist()], np.intp)
        n_new = len(index) - len(self._counts)
        self._weights.grow(len(index))
        self._counts = np.append(self._counts, np.zeros(n_new, np.int64))
        self._limits = np.append(self._limits, np.full(n_new, self._plan.limit))
        self._counts[indices] += counts
        return indices


@final
class MergedCandidates(Scored):
    """Candidates of all rows, from the summary of a pass over them: those that were collected, as arrays."""

    def __init__(self, collected: Summary) -> None:
        whole, view = Summarizer(collected.plan, margin=0.0), collected.plan.view
        whole.absorb(collected)
        collected = whole.summary()
        points, keys, numbers = KeyedPoints.concat([collected.suspects, collected.kept])
        is_inner = np.arange(len(points)) >= len(collected.suspects.keys)
        inner = AnchoredPoints(
            points.with_parts(weights=points.weights * is_inner), view.loss, view.anchor, keys
        )
        ranks, totals = np.where(is_inner, keys, np.inf), collected.totals.values
        super().__init__(points, np.flatnonzero(~is_inner), inner, ranks, numbers, totals)
        self._weights = collected.weights
        self._strata = Strata(collected.numbers, collected.counts, collected.weights.values)

    def rest(self, strata: Array, rows: Array) -> float:
        left = self._weights.take(strata).total()
        left.add_rows(self.points.weights[rows], -1)
        return float(left.values)


def _as_bytes(part: Any) -> bytes:
    """Turn a loss or a sampler into bytes that distinguish it from others, as far as possible."""
    try:
        return pickle.dumps(part, protocol=4)
    except Exception:  # whatever a custom class may raise
        return type(part).__qualname__.encode()
