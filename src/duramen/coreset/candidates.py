"""What a pass over data in batches collects, mergeable in any order, and what is chosen from after it.

The second pass collects candidates: the points of the largest losses, the smallest ranks of all others,
and exact totals over those. The first pass does the same without losses: it ranks points by their weights
alone, and the smallest ranks are the sample that an anchor is found on.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
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
    given_anchor,
    largest_losses,
    sample_of,
)
from duramen.coreset.wire import arrays_of, damaged, pack, points_of, require, unpack
from duramen.errors import RowError, rows_from
from duramen.points import WeightedPoints
from duramen.samplers.base import (
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
        if len(parts) == 1:
            return parts[0]
        points, keys, strata = zip(*parts, strict=True)
        try:
            return KeyedPoints(WeightedPoints.concat(points), np.concatenate(keys), np.concatenate(strata))
        except RowError as error:
            name = error.values["id"]
            raise ValueError(f"ids must be distinct; id {name} occurs in more than one row") from None


@final
class Buffer:
    """Points of which some are kept: new ones wait until they are as many, and then all are cut together.

    What is kept depends on the points that arrived, not on their order or batches. ``select`` finds the rows
    to keep; ``least`` points may wait in any case.
    """

    def __init__(self, select: Callable[[KeyedPoints], Array], least: int) -> None:
        self._select, self._least = select, least
        self._parts: list[KeyedPoints] = []
        self._n_waiting, self._n_kept = 0, 0  # added since the last cut, and left by it

    def add(self, part: KeyedPoints) -> KeyedPoints | None:
        """Add points that may be kept; return those that can no longer be."""
        self._parts.append(part)
        self._n_waiting += len(part.keys)
        return self.cut() if self._n_waiting > max(self._n_kept, self._least) else None

    def cut(self) -> KeyedPoints | None:
        """Keep no more points than are needed, sorted by id; return the others, if there are any."""
        if not self._n_waiting:
            return None
        whole = KeyedPoints.concat(self._parts)
        rows = self._select(whole)
        others = np.delete(np.arange(len(whole.keys)), rows)
        self._parts = [whole.take(rows[np.argsort(whole.points.ids[rows])])]
        self._n_waiting, self._n_kept = 0, len(rows)
        return whole.take(others) if len(others) else None

    def kept(self) -> KeyedPoints | None:
        """Return the points that are left, sorted by id; None where there never were any."""
        self.cut()
        return self._parts[0] if self._parts else None


def form_of(points: WeightedPoints) -> str:
    """Describe the format of points, which all batches share."""
    kind = f"{'sparse ' if sparse.issparse(points.X) else ''}{points.X.dtype}"
    return f"{points.n_columns} columns of {kind}, {'with' if points.y is not None else 'without'} labels"


_OTHER_PLAN = (
    "these summaries were made by different plans, so they cannot be merged; use one plan for all "
    "summaries of a pass"
)


@dataclass(frozen=True, eq=False)
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
    problem: Settings = field(repr=False)
    view: View = field(repr=False)
    columns: tuple[str, ...] | None = field(default=None, repr=False)
    expected: tuple[int, int] | None = field(default=None, repr=False)  # rows, and those with weight
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", _fingerprint(self))

    def expecting(self, n_rows: int) -> Plan:
        """Plan for ``n_rows`` rows of weight 1 over all parts: each then sends only its share of the sample.

        If there are fewer, the pass is repeated.
        """
        enough = SAMPLE + 1 + 6 * SAMPLE**0.5 + 40
        return self.with_view(limit=enough / n_rows if n_rows > enough else np.inf)

    def with_view(self, **changes: Any) -> Plan:
        """Return the plan with another view."""
        return replace(self, view=replace(self.view, **changes))


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
    suspects : KeyedPoints or None
        The points that may be suspected, with their losses, sorted by id. All others are inliers.
    numbers, counts : arrays
        The numbers of the inliers' strata, in ascending order, and how many points each has.
    weights : ExactSums
        The weight of each stratum.
    totals : ExactSums or None
        Over the inliers, of the features that weights are calibrated to.
    kept : KeyedPoints or None
        The inliers of the smallest ranks of each stratum, sorted by id, with the numbers of their strata.
    """

    plan: Plan
    n_rows: int
    form: str | None
    classes: tuple[float, ...]
    suspects: KeyedPoints | None
    numbers: Array
    counts: Array
    weights: ExactSums
    totals: ExactSums | None
    kept: KeyedPoints | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Summary) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Summary of {self.n_rows:,} rows in pass {self.plan.number}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Summary.from_bytes, (self.to_bytes(), self.plan)

    @property
    def n_points(self) -> int:
        """The number of points of positive weight."""
        return int(self.counts.sum()) + (0 if self.suspects is None else len(self.suspects.keys))

    @property
    def suspected(self) -> float:
        """The weight of the points that may be suspected."""
        return 0.0 if self.suspects is None else self.suspects.points.total_weight

    @property
    def total(self) -> float:
        """The total weight of all points; raise ValueError if it is not finite."""
        total = self.weights.total()
        if self.suspects is not None:
            total.add_rows(self.suspects.points.weights)
        if not np.isfinite(total.values):
            raise ValueError("weights add up to infinity; scale them down")
        return float(total.values)

    @property
    def is_short(self) -> bool:
        """Whether fewer points were kept than a sample needs."""
        n_kept = 0 if self.kept is None else len(self.kept.keys)
        return n_kept <= SAMPLE and n_kept < self.n_points

    def sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight, as ``anchor_sample`` does in memory."""
        if not self.n_rows:
            raise ValueError("there are no points; at least one row is needed")
        if not self.total or self.kept is None:
            raise ValueError("all weights are zero; pass some positive weights")
        return sample_of(self.kept.points, self.kept.keys)

    def to_bytes(self) -> bytes:
        """Return the bytes of the summary, without the plan: the same on every machine."""
        arrays = {"strata": self.numbers, "counts": self.counts, "weights": self.weights.parts()}
        if self.totals is not None:
            arrays["totals"] = self.totals.parts()
        for name, part in (("kept", self.kept), ("suspects", self.suspects)):
            if part is not None:
                arrays |= {f"{name}.keys": part.keys, **arrays_of(part.points, name)}
        if self.kept is not None and len(self.numbers) > 1:
            short = np.int16 if len(self.numbers) <= np.iinfo(np.int16).max else np.int32
            arrays["places"] = np.searchsorted(self.numbers, self.kept.strata).astype(short)
        facts = {"rows": self.n_rows, "form": self.form, "classes": self.classes}
        return pack({"plan": self.plan.fingerprint, **facts}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, plan: Plan) -> Summary:
        """Read what :meth:`to_bytes` returned; raise ValueError unless it is a summary made by this plan."""
        facts, arrays = unpack(data)
        if facts.get("plan") != plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        try:
            return cls._of_parts(facts, arrays, plan)
        except (TypeError, KeyError, IndexError, OverflowError) as error:
            raise damaged(str(error)) from error

    @classmethod
    def _of_parts(cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], plan: Plan) -> Summary:
        """Restore a summary from what its bytes contain; refuse anything that this plan cannot have made."""
        view = plan.view
        numbers, counts, n_rows = arrays["strata"], arrays["counts"], facts["rows"]
        n = len(numbers)
        whole = numbers.dtype == counts.dtype == np.int64 and counts.shape == numbers.shape == (n,)
        require(whole and (numbers[1:] > numbers[:-1]).all() and (counts > 0).all(), "its strata")
        weights = ExactSums.of_parts(arrays["weights"], n)
        totals = None
        if view.features is not None:
            totals = ExactSums.of_parts(arrays["totals"], view.features.n_columns)
        form = facts["form"]
        classes = np.array(facts["classes"], dtype=np.float64).ravel()[:2]
        if len(classes):
            _check_labels(classes, view)
        kept, suspects = (_read_points(arrays, name, form, view) for name in ("kept", "suspects"))
        n_points = sum(counts.tolist()) + (0 if suspects is None else len(suspects.keys))
        require(type(n_rows) is int and n_points <= n_rows < 2**63, "its number of rows")
        require(isinstance(form, str) if n_rows else form is None, "its form")
        require((kept is None) == (n == 0), "its rows")
        if kept is not None:
            places = arrays["places"] if n > 1 else np.zeros(len(kept.keys), dtype=np.int64)
            require(places.shape == kept.keys.shape and places.dtype.kind == "i", "its strata")
            require((places >= 0).all() and (places < n).all() and (kept.keys < np.inf).all(), "its strata")
            n_kept, heavy = (np.bincount(places, of, minlength=n) for of in (None, kept.points.weights))
            require(((n_kept > 0) & (n_kept <= counts)).all(), "its counts")
            require((heavy / (1 + 1e-9) <= weights.values).all(), "the weights of its strata")
            kept = kept._replace(strata=numbers[places])
        known = tuple(classes.tolist())
        return cls(plan, n_rows, form, known, suspects, numbers, counts, weights, totals, kept)


def _read_points(arrays: Mapping[str, Array], name: str, form: str, view: View) -> KeyedPoints | None:
    """Restore points of positive weight, sorted by id, that the loss accepts; None where there are none."""
    if f"{name}.keys" not in arrays:
        return None
    points, keys = points_of(arrays, name), arrays[f"{name}.keys"]
    require(keys.shape == points.ids.shape and keys.dtype.kind == "f" and (keys >= 0).all(), name)
    require((points.weights > 0).all() and (points.ids[1:] > points.ids[:-1]).all(), name)
    require(form_of(points) == form and not (points.y is None and view.loss.needs_labels), "its form")
    if not view.blind:
        given_anchor(view.anchor, view.loss, points.n_columns)  # of a shape that fits
    if points.y is not None:
        _check_labels(points.y, view)
    return KeyedPoints(points, keys, np.zeros(len(keys), dtype=np.int8))


def _check_labels(y: Array, view: View) -> None:
    require(np.isfinite(y).all(), "its labels")
    if view.loss.needs_labels:
        view.loss.check_labels(y)


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
        # as points arrive, limits only move towards them: a point beyond cannot be kept
        self._weight, self._floor = view.suspected * (1 + margin), view.floor
        self._limits = np.empty(0)  # by stratum, of ranks
        self._outer = Buffer(self._largest, self._size)
        self._lowest = Buffer(self._smallest, self._size)
        self._totals = None if view.features is None else ExactSums(view.features.n_columns)
        self._index: dict[int, int] = {}  # of each stratum's number, in the counts and weights
        self._counts, self._weights = np.zeros(0, dtype=np.int64), ExactSums(0)
        self._form: str | None = None
        self._classes: tuple[float, ...] = ()
        self.n_rows = 0

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add some rows; errors number rows from ``before``, or from the rows added so far."""
        with rows_from(self.n_rows if before is None else before):
            self._add(points)

    def _add(self, points: WeightedPoints) -> None:
        """Add a batch: keep the points that may be suspected; all others are inliers."""
        view, loss = self._view, self._view.loss
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
        scored = view.score(points, self._suspect if self._weight else None)
        if self._totals is not None:
            self._totals.add(scored.totals())
        self._add_inliers(scored)
        outer = scored.suspects().rows
        if len(outer):
            suspects = KeyedPoints(points, scored.inner.losses, np.zeros(len(points), dtype=np.int8))
            self.release(self._outer.add(suspects.take(outer)))
        self.n_rows += len(points)

    def absorb(self, other: Summary) -> None:
        """Merge a summary by the same plan into this one."""
        if other.plan.fingerprint != self._plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        if other.form is not None:
            self._admit(other.form, other.classes)
        indices = self._count(other.numbers, other.counts)
        self._weights.absorb(other.weights, at=indices)
        if self._totals is not None and other.totals is not None:
            self._totals.absorb(other.totals)
        if other.kept is not None:
            points, ranks, numbers = other.kept
            self._rank(points, ranks, indices[np.searchsorted(other.numbers, numbers)])
        if other.suspects is not None:
            self.release(self._outer.add(other.suspects))
        self.n_rows += other.n_rows

    def release(self, former: KeyedPoints | None) -> None:
        """Add former suspects to the inliers; what each contributes does not depend on the others."""
        if former is None or not len(former.keys):
            return
        points, view = former.points, self._view
        anchored = AnchoredPoints(points, view.loss, view.anchor, former.keys)
        check_finite(anchored)
        assert isinstance(view.sampler, RankedSampler)
        if view.features is not None and self._totals is not None:
            self._totals.add_rows(view.features.columns(points) * points.weights[:, None])
        self._add_inliers(ranked_rows(view.sampler, anchored, view.seed, steady=True))

    def summary(self) -> Summary:
        """Return the summary of all rows, the same in whatever order; no more may be added after it."""
        self.release(self._outer.cut())
        numbers = np.array(list(self._index), dtype=np.int64)
        order = np.argsort(numbers)
        order = order[self._counts[order] > 0]
        kept = self._lowest.kept()
        return Summary(
            plan=self._plan,
            n_rows=self.n_rows,
            form=self._form,
            classes=self._classes,
            suspects=self._outer.kept(),
            numbers=numbers[order],
            counts=self._counts[order],
            weights=self._weights.take(order),
            totals=self._totals,
            kept=kept and kept._replace(strata=numbers[kept.strata]),
        )

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
            places = np.ones(len(points), dtype=np.int8) if places is None else places
            self._rank(points, ranked.ranks, np.append(0, indices)[places])

    def _rank(self, points: WeightedPoints, ranks: Array, strata: Array) -> None:
        """Copy the points that may stay; an infinite rank means absence, strata are numbered from 0."""
        keyed = KeyedPoints(points, ranks, strata)
        rows = self._smallest(keyed)
        if len(rows):
            self._lowest.add(keyed.take(rows))

    def _smallest(self, keyed: KeyedPoints) -> Array:
        """Find the rows of the smallest ranks of each stratum, and those that tie with the last of them."""
        ranks, strata = keyed.keys, keyed.strata
        n_new = len(self._index) - len(self._limits)
        self._limits = np.append(self._limits, np.full(n_new, self._view.limit))
        limits = self._limits[0] if len(self._limits) == 1 else self._limits[strata]
        rows = np.flatnonzero((ranks <= limits) & (ranks < np.inf))
        if len(rows) > self._size:
            ranks, strata = ranks[rows], strata[rows]
            for stratum in np.flatnonzero(np.bincount(strata) > self._size):
                mine = np.partition(ranks[strata == stratum], self._size - 1)
                self._limits[stratum] = mine[self._size - 1]
            rows = rows[ranks <= self._limits[strata]]
        return rows

    def _suspect(self, anchored: AnchoredPoints) -> Array:
        return self._largest(KeyedPoints(anchored.points, anchored.losses, anchored.losses))

    def _largest(self, keyed: KeyedPoints) -> Array:
        """Find the rows of the largest losses that may be suspected; the others are inliers for good."""
        points, losses, _ = keyed
        rows = np.flatnonzero((losses >= self._floor) & (points.weights > 0))
        weights = points.weights[rows]
        heavy = float(weights.sum()) > self._weight
        rows = rows[largest_losses(losses[rows], points.ids[rows], weights, self._weight)]
        if heavy:
            self._floor = max(self._floor, float(losses[rows].min(initial=np.inf)))
        return rows

    def _count(self, numbers: Array, counts: Array) -> Array:
        """Add to the counts of strata; return their indices: a new stratum gets the next one."""
        index = self._index
        indices = np.array([index.setdefault(number, len(index)) for number in numbers.tolist()], np.intp)
        self._weights.grow(len(index))
        self._counts = np.append(self._counts, np.zeros(len(index) - len(self._counts), dtype=np.int64))
        self._counts[indices] += counts
        return indices


@final
class MergedCandidates(Scored):
    """Candidates of all rows, from the summary of a pass over them: those that were collected, as arrays."""

    def __init__(self, collected: Summary) -> None:
        whole, view = Summarizer(collected.plan, margin=0.0), collected.plan.view
        whole.absorb(collected)
        self._collected = collected = whole.summary()
        both = [part for part in (collected.suspects, collected.kept) if part is not None]
        points, keys, numbers = KeyedPoints.concat(both)
        n_inner = 0 if collected.kept is None else len(collected.kept.keys)
        is_inner = np.arange(len(points)) >= len(points) - n_inner
        inner = AnchoredPoints(
            points.with_parts(weights=points.weights * is_inner), view.loss, view.anchor, keys
        )
        totals = None if collected.totals is None else collected.totals.values
        ranks = np.where(is_inner, keys, np.inf)
        super().__init__(points, np.flatnonzero(~is_inner), inner, ranks, numbers, totals)

    def strata(self) -> Strata:
        return Strata(self._collected.numbers, self._collected.counts, self._collected.weights.values)

    def rest(self, strata: Array, rows: Array) -> float:
        left = self._collected.weights.take(strata).total()
        left.add_rows(self.points.weights[rows], -1)
        return float(left.values)


def _fingerprint(plan: Plan) -> str:
    """Compute a hash that distinguishes a plan from others."""
    problem, view = plan.problem, plan.view
    words = [plan.number, problem.seed, problem.plan, problem.calibrate, problem.n_outliers]
    words += [view.suspected, view.floor, view.limit]
    parts = [repr(words).encode(), *map(_as_bytes, (problem.loss, problem.chooser, view.sampler))]
    for name, state in sorted({**view.anchor.frozen, "": view.anchor.theta}.items()):
        parts.append(name.encode() + state.tobytes())
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def _as_bytes(part: Any) -> bytes:
    """Turn a loss or a sampler into bytes that distinguish it from others, as far as possible."""
    try:
        return pickle.dumps(part, protocol=4)
    except Exception:  # whatever a custom class may raise
        return type(part).__qualname__.encode()
