"""duramen beside what people use instead: one run, one machine, the same data, figures as ratios."""
