"""``duramen store stats``: what is in a store."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.output import table
from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, reading

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "stats",
        run,
        help="say what is in a store",
        text="Says how many rows there are, of which columns, how many are suspected, and how "
        "the anchor fits.",
        example="duramen store stats customers.duramen",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> None:
    """Look, and say."""
    with reading(options.store) as store:
        report = store.anchor_report()
        found = {
            "store": store.path,
            "loss": repr(store.loss),
            "n_points": store.n_points,
            "total_weight": store.total_weight,
            "columns": _columns(store),
            "label": _encoding(store).get("label"),
            "size": store.size,
            "engine": store.engine,
            "n_outliers": store.n_outliers,
            "n_suspected": store.n_suspected,
            "threshold": store.threshold,
            "anchored": store.anchor is not None,
            "radius": report.radius,
            "reanchor_advised": report.advised,
            "n_late": report.n_late,
            "n_forgotten": len(store.forgotten),
            "n_bytes": options.store.stat().st_size,
        }
        anchor = repr(report).partition(": ")[2].replace("reanchor()", "duramen store reanchor")
    options.talk.say(f"{found['store']}: a store for {found['loss']}")
    options.talk.say(table(_lines(found)))
    options.talk.say(f"  anchor: {anchor}")
    options.talk.emit("store stats", **found)


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    columns = found["columns"]
    named = "not known yet" if columns is None else f"{len(columns):,}: {', '.join(columns[:8])}"
    return [
        ("points", f"{found['n_points']:,}, weight {found['total_weight']:,.6g}"),
        ("columns", named + (", ..." if columns is not None and len(columns) > 8 else "")),
        ("label", found["label"] or "none"),
        ("coreset", f"{found['size']:,} rows, {found['engine']}"),
        ("to set aside", f"weight {found['n_outliers']:,.6g}"),
        ("suspected", f"{found['n_suspected']:,} points, from a loss of {found['threshold']:.6g} on"),
        ("forgotten", f"{found['n_forgotten']:,} in the audit"),
        ("on disk", f"{found['n_bytes']:,} bytes"),
    ]


def _encoding(store: Any) -> dict[str, Any]:
    return dict(store.notes.get("encoding") or store.notes.get("columns") or {})


def _columns(store: Any) -> list[str] | None:
    from duramen.io import Encoding

    state = store.notes.get("encoding")
    if state is not None:
        return list(Encoding.from_json(state).names)
    return None if store.columns is None else list(store.columns)
