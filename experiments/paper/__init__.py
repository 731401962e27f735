"""The paper's experiments, run again: its tables and figures, and what goes beyond them."""
