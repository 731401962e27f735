"""What the comparison takes from elsewhere: the data of the experiments, and how their pages are written."""

from experiments.paper.data import (
    Contaminated,
    MissingDataError,
    Table,
    covertype,
    made_up_covertype,
    made_up_survey,
    survey,
    with_far_points,
    with_planted_rows,
)
from experiments.paper.fits import timed
from experiments.paper.pages import machine, table

__all__ = [
    "Contaminated",
    "MissingDataError",
    "Table",
    "covertype",
    "machine",
    "made_up_covertype",
    "made_up_survey",
    "survey",
    "table",
    "timed",
    "with_far_points",
    "with_planted_rows",
]
