"""duramen compared with other libraries: one run, one machine, the same data, figures as ratios."""
