"""``duramen fit``: a model from a coreset, a store or data."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.cli.files import check_target
from duramen.cli.losses import add_loss
from duramen.cli.options import add_columns, add_output, add_sampling, at_least, number
from duramen.cli.parser import add_command

if TYPE_CHECKING:
    from duramen.cli.cores import CoreFile
    from duramen.cli.model import Model
    from duramen.coreset import Estimate
    from duramen.solvers import Solution

__all__ = ["add_parser"]

_SHOWN = 10  # rows that were set aside


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "fit",
        run,
        help="a model from a coreset, a store or data",
        text="Fits a model after the outliers are set aside, and says which rows these were. Of data, a "
        "coreset is built first, as duramen build does. The model is a JSON file for duramen predict.",
        example="duramen fit core.parquet -o model.json",
    )
    parser.add_argument("source", type=Path, metavar="CORE|STORE|DATA", help="what to learn from")
    add_output(parser, "where to write the model, a JSON file (default: nowhere)", required=False)
    solver = parser.add_argument_group("solver")
    solver.add_argument(
        "--l2", type=number, default=0.0, metavar="L", help="penalty on the coefficients (default: 0)"
    )
    solver.add_argument(
        "--starts", type=at_least(1), default=1, metavar="N", help="how often to start (default: 1)"
    )
    solver.add_argument(
        "--max-iter", type=at_least(1), default=300, metavar="N", help="iterations of a start (default: 300)"
    )
    solver.add_argument(
        "--tol", type=number, metavar="SHARE", help="stop when an iteration gains less than this share"
    )
    parser.add_argument(
        "--top",
        type=at_least(0),
        default=_SHOWN,
        metavar="N",
        help=f"how many rows set aside to list (default: {_SHOWN})",
    )
    add_loss(parser, required=False)
    add_columns(parser)
    add_sampling(parser)


def run(options: argparse.Namespace) -> None:
    """Find the coreset, solve, write the model, and say what was set aside."""
    from duramen.cli.model import write_model
    from duramen.cli.sources import core_of
    from duramen.solvers import solve

    if options.output is not None:
        check_target(options.output, force=options.force, inputs=[options.source], suffixes=(".json",))
    start = time.perf_counter()
    kind, file = core_of(options.source, options)
    solution = solve(
        file.core,
        n_outliers=None if kind == "data" else options.outliers,
        l2=options.l2,
        n_starts=options.starts,
        random_state=options.seed,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    share = solution.n_outliers / solution.total_weight  # as a weight below 1 it would be taken for a share
    estimate = file.core.estimate(solution.theta, share)
    model = model_of(file, solution, estimate, options.l2)
    if options.output is not None:
        write_model(options.output, model)
    aside = set_aside(file, solution, options.top)
    _tell(options, solution, estimate, aside)
    found = {name: value for name, value in model.facts.items() if name != "made_by"}
    options.talk.emit(
        "fit",
        source=options.source,
        kind=kind,
        model=options.output,
        loss=repr(solution.loss),
        theta=solution.theta,
        columns=model.columns,
        classes=model.classes,
        n_set_aside=len(solution.outliers),
        set_aside=aside,
        seconds=time.perf_counter() - start,
        **found,
    )


def model_of(file: CoreFile, solution: Solution, estimate: Estimate, l2: float) -> Model:
    """Put together what was learned."""
    from duramen import __version__
    from duramen.cli.model import Model

    facts = {
        "made_by": f"duramen {__version__}",
        "n_points": file.core.n_points,
        "total_weight": solution.total_weight,
        "n_outliers": solution.n_outliers,
        "l2": l2,
        "objective": solution.objective,
        "std_error": estimate.std_error,
        "low": estimate.low,
        "high": estimate.high,
        "converged": solution.converged,
        "status": solution.status.value,
        "n_iter": solution.n_iter,
    }
    columns = file.core.columns if file.encoding is None else tuple(file.encoding.names)
    return Model(solution.loss, solution.theta, columns, classes_of(file), file.encoding, facts)


def classes_of(file: CoreFile) -> list[Any] | None:
    """Tell what the classes are called: as in the data, or by the numbers that the labels are."""
    loss, y = file.core.loss, file.core.y
    n_classes = getattr(loss, "n_classes", 2 if getattr(loss, "classifies", False) else None)
    if n_classes is None or y is None:
        return None
    named = None if file.encoding is None else file.encoding.classes
    if named is not None:
        return list(named)
    return [-1, 1] if n_classes == 2 and (y == -1).any() else list(range(n_classes))


def set_aside(file: CoreFile, solution: Solution, top: int) -> list[dict[str, Any]]:
    """List the rows that were set aside, the largest loss first: id, weight and loss."""
    core, ids = file.core, solution.outliers[:top]
    place = {int(one): row for row, one in enumerate(core.ids)}
    rows = [place[int(one)] for one in ids]
    if not rows:
        return []
    chosen = core.points.take(rows)
    losses = core.loss.values(solution.theta, chosen.X, chosen.y)
    return [
        {"id": file.name_of(int(one)), "weight": float(weight), "loss": float(loss)}
        for one, weight, loss in zip(ids, solution.aside, losses, strict=False)
    ]


def _tell(
    options: argparse.Namespace, solution: Solution, estimate: Estimate, aside: list[dict[str, Any]]
) -> None:
    from duramen.coreset.display import interval

    talk = options.talk
    talk.say(repr(solution))
    talk.say(
        f"  f_z on all the data: {interval(estimate, ' +- ')}, estimated from the coreset (standard error)"
    )
    if aside:
        talk.say("set aside, the largest loss first:")
        talk.say(f"  {'id':<24}{'weight':>12}{'loss':>14}")
    for one in aside:
        talk.say(f"  {one['id']!s:<24}{one['weight']:>12.6g}{one['loss']:>14.6g}")
    if len(aside) < len(solution.outliers) and aside:
        talk.say(f"  ... and {len(solution.outliers) - len(aside):,} more (--top lists them)")
    if options.output is not None:
        talk.say(f"written to {options.output}")
