"""Beyond one machine: summaries that any engine can make and merge, and Dask.

>>> from duramen.distributed import finish, merge, plan, summarize

A pass over the data makes a :class:`Summary` of every part, merges them, and
:func:`finish` returns the plan of the next pass, or the coreset. Parts may be in
files, on workers, or on sites that share only summaries. For Dask,
``duramen.distributed.dask`` does all of it; for rows that change where they are,
there is a :class:`Federation` of sites.
"""

from duramen.coreset.candidates import Plan, Summary
from duramen.coreset.passes import finish, merge, plan, summarize
from duramen.distributed.federation import Federation, Site

__all__ = ["Federation", "Plan", "Site", "Summary", "finish", "merge", "plan", "summarize"]
