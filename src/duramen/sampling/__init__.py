"""Samplers: the black box A, which makes few weighted points of many."""

from duramen.sampling.base import RankedSampler, Sampler, Seen
from duramen.sampling.layered import LayeredSampler
from duramen.sampling.leverage import LeverageSampler
from duramen.sampling.sensitivity import SensitivitySampler
from duramen.sampling.uniform import UniformSampler

__all__ = [
    "LayeredSampler",
    "LeverageSampler",
    "RankedSampler",
    "Sampler",
    "Seen",
    "SensitivitySampler",
    "UniformSampler",
]
