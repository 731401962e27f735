"""Attacks on classifiers: what bad training rows do to robust models, and to plain ones."""
