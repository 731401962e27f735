"""``duramen store history``: how the anchor came to be, and what was forgotten."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, reading

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "history",
        run,
        help="list the anchors of a store, and what was forgotten",
        text="Lists when an anchor was made, on how many points, and how far it moved; and, of a store with "
        "--audit, the id and the time of every deletion.",
        example="duramen store history customers.duramen",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> None:
    """List, the oldest first."""
    with reading(options.store) as store:
        events = [event._asdict() for event in store.history]
        forgotten = [{"id": one, "time": time} for one, time in store.forgotten]
    talk = options.talk
    talk.say(f"{options.store}: {len(events)} event{'s' * (len(events) != 1)}" + (":" if events else ""))
    for event in events:
        moved = "" if event["moved"] is None else f", moved by {event['moved']:.4g}"
        what = f"{event['time']}  {event['what']}"
        points = "" if event["n_points"] is None else f"{event['n_points']:,} points, "
        talk.say(f"  {what}: {points}radius {event['radius']:.4g}{moved}")
    if forgotten:
        talk.say(f"{len(forgotten):,} forgotten:")
    for one in forgotten:
        talk.say(f"  {one['time']}  {one['id']}")
    talk.emit("store history", store=options.store, events=events, forgotten=forgotten)
