Z = 10_000  # planted rows, as in the paper
