"""An HTML page about a coreset: what is in it, which rows are suspected, and why."""
