"""Samplers: the black box A, which reduces many points to a few weighted ones; and their names."""

from __future__ import annotations

from typing import Any

from duramen.losses.base import Loss
from duramen.samplers.base import AnchoredPoints, Bound, RankedSampler, Sampler
from duramen.samplers.layered import LayeredSampler, UniformSampler
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

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "layered": LayeredSampler,
    "leverage": LeverageSampler,
    "sensitivity": SensitivitySampler,
}


def default_sampler(loss: Loss, has_radius: bool, few: bool) -> Sampler:
    """Return the sampler that the loss names; sensitivities need a radius.

    A function of what a coreset keeps: passing its anchor back chooses the same sampler.
    """
    name = loss.default_sampler(has_radius, few)
    return SensitivitySampler(quiet=True) if name == "sensitivity" else SAMPLERS[name]()


def as_sampler(sampler: Any) -> Sampler | None:
    """Convert a name to a sampler; None for "auto", which depends on the anchor."""
    if isinstance(sampler, str):
        if sampler == "auto":
            return None
        if sampler not in SAMPLERS:
            raise ValueError(
                f"sampler={sampler!r} is not known; use one of {['auto', *SAMPLERS]}, or pass a Sampler"
            )
        return SAMPLERS[sampler]()
    if isinstance(sampler, Bound):
        return sampler.sampler
    if isinstance(sampler, Sampler):
        return sampler
    found = f"the class {sampler.__name__}; call it" if isinstance(sampler, type) else repr(sampler)
    raise TypeError(f"sampler must be a Sampler, or one of {['auto', *SAMPLERS]}; found {found}")
