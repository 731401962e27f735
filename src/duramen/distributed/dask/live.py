"""A live coreset on a Dask cluster: sites as actors, one a worker or one a name, merged on demand.

An actor lives in the memory of its worker, and is lost with it. Dask does not
make it again, and neither does this: a site whose worker is gone is named in
every error until :meth:`LiveCoreset.restart` makes an empty one, into which its
rows must be put again. Where that cannot be, keep a :class:`duramen.Store` on
every machine, and ask them through a :class:`Federation` of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final
from uuid import uuid4

import numpy as np

from duramen.arrays import Array, as_rows
from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.distributed.federation import Ask, Federation, at_site
from duramen.distributed.site import Site
from duramen.dynamic import DynamicCoreset
from duramen.dynamic.ids import numbered
from duramen.extras import needed
from duramen.seeds import generator

__all__ = ["LiveCoreset"]

_OF_A_SITE = ("loss", "size", "sampler", "suspects", "calibrate")


@final
class LiveCoreset:
    """The coreset of rows that come, go and are corrected on the workers of a Dask cluster.

    At any moment ``coreset()`` is what :func:`duramen.robust_coreset` would make of
    all rows that are there, with the same anchor and seed. Only summaries travel.

    Parameters
    ----------
    client : dask.distributed.Client
    sites : sequence of names, or mapping of names to addresses of workers, optional
        By default there is one site on each worker, named by its address. Names alone go to the workers in
        turn.
    random_state : None, int or numpy Generator
    **asked
        As for :func:`duramen.distributed.plan`.

    Attributes
    ----------
    actors : dict
        The actors by the names of their sites. A task may be handed one, and put rows in where they arrive:
        ``actor.insert(X, y, ids=ids).result()``.

    Notes
    -----
    Rows go to the site that is named, or else to the one that their id says: those are found again by their
    ids. Rows of a site that was named are found where it is named again.

    Rows live in the memory of their worker, and are lost with it; see :meth:`restart`.
    """

    def __init__(
        self,
        client: Any,
        *,
        sites: Iterable[Any] | Mapping[Any, str] | None = None,
        random_state: Any = None,
        **asked: Any,
    ) -> None:
        distributed = needed("distributed", "LiveCoreset", "dask")
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise TypeError(
                f"LiveCoreset needs a dask.distributed.Client that is not asynchronous; {client!r}"
            )
        if not isinstance(random_state, (int, np.integer)):
            random_state = int(generator(random_state).integers(2**31))
        self._federation = Federation({}, random_state=random_state, **asked)
        z = asked.get("n_outliers", 0)
        self._settings = {name: asked[name] for name in _OF_A_SITE if name in asked}
        self._settings |= {"random_state": random_state, "n_outliers": z if z < 1 else 0}
        self._client = client
        self._futures: dict[Any, Any] = {}
        self.actors: dict[Any, Any] = {}
        self._start(_placed(sites, list(client.nthreads())))

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with all that was frozen; None until there is one."""
        return self._federation.anchor

    def __len__(self) -> int:
        with _hinting():
            return sum(actor.n_points for actor in self.actors.values())

    def __repr__(self) -> str:
        return f"LiveCoreset on {len(self.actors):,} sites: {self._federation!r}"

    def insert(
        self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None, *, site: Any = None
    ) -> Array:
        """Put rows in, as :meth:`duramen.DynamicCoreset.insert` does, with ``ids`` that no other row has.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            Naming the site. It has changed nothing; others may have taken in theirs, and are named too.
        """
        if ids is None:
            raise TypeError("rows are found again by their ids; pass ids that no other row has, one a row")
        self._each("insert", ids, site, lambda ids, parts: (*parts, ids), X, y, sample_weight)
        return numbered(ids)[0]

    def delete(self, ids: Any, *, site: Any = None) -> None:
        """Take rows out.

        Raises
        ------
        KeyError, RuntimeError
            Naming the site. It has changed nothing; others may have taken out theirs, and are named too.
        """
        self._each("delete", ids, site, lambda ids, parts: (ids,))

    def update(
        self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, site: Any = None
    ) -> None:
        """Put others in the place of rows; what is not given stays what it was.

        Raises
        ------
        KeyError, TypeError, ValueError, RuntimeError
            Naming the site. It has changed nothing; others may have changed theirs, and are named too.
        """
        self._each("update", ids, site, lambda ids, parts: (ids, *parts), X, y, sample_weight)

    def coreset(self) -> Coreset:
        """Make the coreset of the rows that are there now: :meth:`Federation.coreset`."""
        with _hinting():
            return self._federation.coreset()

    def reanchor(self, anchor: Any = None) -> None:
        """Look from another anchor: :meth:`Federation.reanchor`."""
        with _hinting():
            self._federation.reanchor(anchor)

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: a count, or a fraction."""
        self._federation.set_outliers(n_outliers)

    def restart(self, site: Any, worker: str | None = None) -> None:
        """Make an empty site in the place of one, say because its worker is lost; its rows must come again.

        Parameters
        ----------
        site
            Its name.
        worker : str, optional
            The address of the worker it shall be on; by default whichever Dask chooses.
        """
        self._actor(site)
        self._start({site: worker})

    def close(self) -> None:
        """Let all sites go, with their rows."""
        self.actors.clear()
        self._federation.sites.clear()
        self._futures.clear()

    def _start(self, places: Mapping[Any, str | None]) -> None:
        """Make empty sites on workers."""
        for name, worker in places.items():
            where = {} if worker is None else {"workers": [worker]}
            empty = DynamicCoreset(**self._settings)
            self._futures[name] = self._client.submit(
                Site, empty, actor=True, key=f"duramen-site-{uuid4()}", **where
            )
        with self._client.as_current():  # an actor asks for the client, and keeps it
            for name in places:
                actor = self._futures[name].result()
                self.actors[name] = actor
                self._federation.sites[name] = _asker(actor)

    def _actor(self, site: Any) -> Any:
        if site not in self.actors:
            raise ValueError(f"there is no site {site!r}; there are {', '.join(map(repr, self.actors))}")
        return self.actors[site]

    def _each(
        self, method: str, ids: Any, site: Any, arguments: Callable[[Any, list[Any]], Any], *columns: Any
    ) -> None:
        """Have sites do something with their share of rows, at the same time."""
        if site is not None:
            self._actor(site)
            shares = {site: (ids, list(columns))}
        else:
            shares = _shared(list(self.actors), ids, columns)
        started = {
            name: _tried(_called, self.actors[name], method, arguments(*share))
            for name, share in shares.items()
        }
        ended = {
            name: _tried(answer.result) if error is None else (None, error)
            for name, (answer, error) in started.items()
        }
        failed = {name: error for name, (_, error) in ended.items() if error is not None}
        for name, error in failed.items():
            done = [repr(other) for other in shares if other not in failed]
            with _hinting():
                raise at_site(name, error, f"; done at {', '.join(done)}" if done else "") from error


@contextmanager
def _hinting() -> Iterator[None]:
    """Tell the way out where a site does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"{error}; if its worker is lost, restart(site) makes it anew, empty: put its rows in again"
        ) from error


def _called(actor: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(actor, method)(*arguments)  # the attribute itself is refused where the worker is lost


def _tried(call: Callable[..., Any], *arguments: Any) -> tuple[Any, Exception | None]:
    """Give what a call returns, or the error that it raises."""
    try:
        return call(*arguments), None
    except Exception as error:
        return None, error


def _asker(actor: Any) -> Ask:
    """Make the function by which a site is asked: what comes back is a future of bytes."""
    return lambda plan: actor.answer(plan)


def _placed(sites: Any, workers: list[str]) -> dict[Any, str]:
    """Say on which worker each site is to be."""
    if not workers:
        raise ValueError("the cluster has no workers; wait for them with client.wait_for_workers(1)")
    if sites is None:
        return {worker: worker for worker in workers}
    if not isinstance(sites, Mapping):
        names = list(sites)
        sites = {name: workers[place % len(workers)] for place, name in enumerate(names)}
        if len(sites) < len(names):
            raise ValueError("sites must have distinct names")
    for name, worker in sites.items():
        if worker not in workers:
            raise ValueError(f"site {name!r} is to be on {worker!r}, which is no worker; {workers} are")
    if not sites:
        raise ValueError("sites is empty; name at least one, or leave it out for one a worker")
    return dict(sites)


def _shared(sites: list[Any], ids: Any, columns: tuple[Any, ...]) -> dict[Any, tuple[Any, list[Any]]]:
    """Share rows out by their ids: what each site gets of the ids and of the columns."""
    numbers, named = numbered(ids)
    places = numbers % len(sites)
    if len(numbers) and (places == places[0]).all():
        return {sites[int(places[0])]: (ids, list(columns))}
    kept: Any = numbers
    if named is not None:
        kept = np.empty(len(named), dtype=object)
        kept[:] = named
    columns = tuple(_column(column, len(numbers)) for column in columns)
    shares = {}
    for place in np.unique(places).tolist():
        rows = np.flatnonzero(places == place)
        parts = [column if column is None or np.ndim(column) == 0 else column[rows] for column in columns]
        shares[sites[place]] = (kept[rows], parts)
    return shares


def _column(column: Any, n: int) -> Any:
    """Bring rows, labels or weights into a form that can be cut."""
    if column is None or np.ndim(column) == 0:
        return column
    cut: Any = as_rows(column, check_values=False) if np.ndim(column) == 2 else np.asarray(column)
    if cut.shape[0] != n:
        raise ValueError(f"there are {n} ids for {cut.shape[0]} rows; pass one id a row")
    return cut
