"""``duramen certify``: how far a coreset is from its data, measured."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.cli.files import check_source
from duramen.cli.losses import name_of
from duramen.cli.options import add_columns, add_seed, at_least, column_options, given, number
from duramen.cli.parser import add_command

if TYPE_CHECKING:
    from duramen.certificate import Certificate
    from duramen.cli.cores import CoreFile
    from duramen.cli.output import Output

__all__ = ["add_parser", "certificate_of", "found"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "certify",
        run,
        help="how far a coreset is from its data, measured",
        text="Compares the objective of a coreset with that of its data at random parameters around the "
        "anchor, and climbs to where the error grows. All rows of the data must fit in memory.",
        example="duramen certify core.parquet rows.parquet",
    )
    parser.add_argument("core", type=Path, metavar="CORE", help="a coreset, as duramen build writes it")
    parser.add_argument("data", type=Path, metavar="DATA", help="the data that it was made from")
    parser.add_argument(
        "--radius", type=number, metavar="R", help="how far from the anchor to look (default: its radius)"
    )
    parser.add_argument(
        "--probes", type=at_least(1), default=64, metavar="N", help="random parameters to try (default: 64)"
    )
    parser.add_argument(
        "--steps", type=at_least(0), default=20, metavar="N", help="steps uphill (default: 20)"
    )
    add_seed(parser)
    add_columns(parser)


def run(options: argparse.Namespace) -> None:
    """Load both, compare, and say how far they are apart."""
    from duramen.cli.cores import read_core

    check_source(options.core)
    check_source(options.data)
    file = read_core(options.core)
    more = {"radius": options.radius, "n_probes": options.probes, "ascent_steps": options.steps}
    wanted = None
    if file.encoding is None:
        wanted = column_options(options)
    elif extra := given(options, ("label", "features", "weight", "id", "one_hot", "impute")):
        raise ValueError(f"{options.core} knows its columns; leave {' and '.join(extra)} out")
    certificate = certificate_of(file, options.data, options.talk, wanted, random_state=options.seed, **more)
    options.talk.say(repr(certificate))
    options.talk.emit("certify", core=options.core, data=options.data, **found(certificate))


def certificate_of(
    file: CoreFile, path: Path, talk: Output, wanted: dict[str, Any] | None = None, **settings: Any
) -> Certificate:
    """Certify a coreset on the data of a file, which are encoded as the coreset's were."""
    from duramen.certificate import certify
    from duramen.cli.data import DataFile, all_points, learned, open_data, options_of

    if file.core.anchor is None:
        raise ValueError(
            "the coreset has no anchor, around which a certificate looks; duramen build makes one with it, "
            "and duramen store reanchor that of a store"
        )
    if file.encoding is None:
        loss = file.core.loss
        data = learned(path, wanted or {}, talk, name_of(loss), getattr(loss, "n_classes", None))
    else:
        data = DataFile(open_data(path), file.encoding)
    with options_of("duramen build and fit, which learn") if file.encoding else nullcontext():
        points = all_points(data, talk)
    return certify(file.core, points.X, points.y, points.weights, **settings)


def found(certificate: Certificate) -> dict[str, Any]:
    """Collect what JSON says of a certificate."""
    return {
        "max_error": certificate.max_error,
        "mean_error": certificate.mean_error,
        "covered": certificate.covered,
        "radius": certificate.radius,
        "n_probes": len(certificate.errors),
        "n_refused": certificate.n_refused,
        "n_points": certificate.n_points,
        "worst": certificate.worst,
        "search": certificate.search,
    }
