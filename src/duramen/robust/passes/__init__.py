"""Two passes over data that comes in parts: summaries that merge, whoever makes them, and the coreset."""

from duramen.robust.passes.plans import Plan, Summary, Tally, finish, merge, plan, summarize

__all__ = ["Plan", "Summary", "Tally", "finish", "merge", "plan", "summarize"]
