"""What a worker of a plain engine does: it gets bytes, and gives bytes. Imported anew by every process."""

import pickle
from functools import reduce

from duramen.distributed import Summary, merge, summarize


def summarized(points, plan):
    """Make the bytes of a summary, from points and a plan that are bytes themselves."""
    return summarize(pickle.loads(points), pickle.loads(plan)).to_bytes()


def merged(summaries, plan):
    """Merge summaries that come and go as bytes; of none, an empty one."""
    step = pickle.loads(plan)
    parts = (Summary.from_bytes(summary, step) for summary in summaries)
    return reduce(merge, parts, summarize([], step)).to_bytes()
