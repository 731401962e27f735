"""``duramen report``: one page about a coreset or a store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from duramen.cli.files import check_source, check_target, kind_of
from duramen.cli.options import add_output, add_seed
from duramen.cli.output import naming
from duramen.cli.parser import add_command

__all__ = ["add_parser"]

_QUICK = 8_000_000  # numbers that a certificate takes a few seconds to look at


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "report",
        run,
        help="one HTML page about a coreset or a store",
        text="Writes a page that needs no network: what is in it, layers, threshold, weights, a picture, who "
        "is suspected and why, the history of the anchor; and a certificate where the data are at hand, "
        "which are those of a store, or --data.",
        example="duramen report customers.duramen -o report.html",
    )
    parser.add_argument("source", type=Path, metavar="STORE|CORE", help="a store, or a coreset's file")
    add_output(parser, "where to write the page, an HTML file")
    parser.add_argument(
        "--data", type=Path, help="the data of the coreset, to certify it; must fit in memory"
    )
    parser.add_argument(
        "--certify",
        action="store_true",
        help="certify a store on its own points, also where they are many and it takes long",
    )
    parser.add_argument("--title", help="the title of the page (default: the name of the file)")
    add_seed(parser)


def run(options: argparse.Namespace) -> None:
    """Collect everything and write the page."""
    inputs = [options.source, *([options.data] if options.data else [])]
    check_target(options.output, force=options.force, inputs=inputs, suffixes=(".html", ".htm"))
    if options.data is not None:
        check_source(options.data)
    kind = kind_of(options.source)
    if kind not in ("store", "core"):
        raise ValueError(
            f"{options.source} is no store and no coreset; duramen build makes a coreset of data"
        )
    html = _of_store(options) if kind == "store" else _of_core(options)
    from duramen.files import replacing

    with naming(str(options.output)), replacing(options.output) as file:
        file.write(html.encode())
    options.talk.say(f"written to {options.output}")
    options.talk.emit(
        "report", report=options.output, source=options.source, kind=kind, n_bytes=len(html.encode())
    )


def _of_core(options: argparse.Namespace) -> str:
    from duramen.cli.cores import read_core
    from duramen.report import report_html

    file = read_core(options.source)
    certificate = _certificate(options, file)
    return report_html(
        file.core,
        title=_title(options),
        certificate=certificate,
        encoding=file.encoding,
        names=file.names,
    )


def _of_store(options: argparse.Namespace) -> str:
    from duramen.cli.sources import file_of
    from duramen.report import report_html
    from duramen.store import open_store

    with open_store(options.source, read_only=True) as store:
        file = file_of(store)
        return report_html(
            store,
            title=_title(options),
            certificate=_certificate(options, file) if options.data else _own_certificate(options, store),
            notes={name: value for name, value in store.notes.items() if name not in ("encoding", "columns")},
            encoding=file.encoding,
        )


def _certificate(options: argparse.Namespace, file: Any) -> Any:
    from duramen.cli.certify import certificate_of

    if options.data is None:
        return None
    if file.core.anchor is None:
        options.talk.warn(f"{options.source} has no anchor yet, around which a certificate is; there is none")
        return None
    return certificate_of(file, options.data, options.talk, random_state=options.seed)


def _own_certificate(options: argparse.Namespace, store: Any) -> Any:
    """Certify a store on its own points, if that is quick, or asked for."""
    from duramen.certificate import certify

    if store.anchor is None:
        return None
    width = store.points(store.ids[:1]).n_columns
    if len(store) * width > _QUICK and not options.certify:
        options.talk.warn(f"{len(store):,} points take long to certify on; --certify does it all the same")
        return None
    points = store.points()
    return certify(store.coreset(), points.X, points.y, points.weights, random_state=options.seed)


def _title(options: argparse.Namespace) -> str:
    return str(options.title or options.source.name)
