"""Samplers: the black box A, which reduces many points to a few weighted ones."""

from duramen.samplers.base import AnchoredPoints, LayeredSampler, RankedSampler, Sampler, UniformSampler
from duramen.samplers.leverage import LeverageSampler
from duramen.samplers.sensitivity import SensitivitySampler

__all__ = [
    "AnchoredPoints",
    "LayeredSampler",
    "LeverageSampler",
    "RankedSampler",
    "Sampler",
    "SensitivitySampler",
    "UniformSampler",
]
