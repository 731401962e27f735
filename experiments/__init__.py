"""The paper's claims, measured: each module makes one table of the documentation."""
