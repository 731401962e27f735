"""An adversary: looks for the parameters that change a loss the most."""

from __future__ import annotations

from functools import partial

import numpy as np

from duramen.losses.base import distance, dual_norms


def one(array, row):
    return None if array is None else array[row : row + 1]


def largest_change(loss, ball, X, y, row, rng, starts=3, steps=15):
    """Maximise |f(theta, x) - f(ball.theta, x)| over the ball for one row, by projected ascent both ways.

    Where a step along the gradient is undone by the projection, so is every other: that way ends there.
    """
    x, label = one(X, row), one(y, row)
    anchor = loss.values(ball.theta, x, label)[0]
    best = 0.0
    for sign in (1.0, -1.0):
        for theta in [*ball.sample(starts, rng), *_far_starts(loss, ball, x, label, rng)]:
            for step in np.geomspace(1.0, 0.02, steps):
                change = loss.values(theta, x, label)[0] - anchor
                best = max(best, abs(change))
                gradient = loss.gradients(theta, x, label)[0]
                length = np.linalg.norm(gradient, axis=-1, keepdims=True)
                direction = np.divide(gradient, length, out=np.zeros_like(gradient), where=length > 0)
                before = theta
                theta = ball.project(theta + sign * step * 2 * ball.radius * direction)
                if np.abs(theta - before).max() <= 1e-13 * ball.radius:
                    break
            best = max(best, abs(loss.values(theta, x, label)[0] - anchor))
    return best


def _far_starts(loss, ball, x, y, rng):
    """Step to the rim where the ball gives no hint: along gradients from far away, and all centres off x."""
    far = ball.theta + 3 * (1 + ball.radius) * rng.normal(size=(3, *ball.theta.shape))
    steps = [loss.gradients(theta, x, y)[0] for theta in np.where(ball.theta > 0, np.abs(far), far)]
    if ball.theta.shape[-1] == x.shape[-1]:
        steps.append((ball.theta - x).reshape(ball.theta.shape))
    units = [step / max(np.abs(step).max(), 1e-300) for step in steps]
    return [
        ball.project(ball.theta + 1e6 * (1 + ball.radius) * sign * unit) for unit in units for sign in (1, -1)
    ]


def climb(quotient, start, rng, steps=100):
    """Maximise a quotient of two parameters by random steps, kept where they help."""
    pair, best = start, quotient(*start)
    for step in range(steps):
        scale = 3.0 * 0.95**step
        tried = tuple(
            theta + rng.normal(scale=scale, size=theta.shape) * rng.choice([0.05, 1]) for theta in pair
        )
        value = quotient(*tried)
        if value > best:
            pair, best = tried, value
    return best


def value_quotient(loss, x, y, a, b):
    gap = distance(a, b)
    return abs(loss.values(a, x, y)[0] - loss.values(b, x, y)[0]) / gap if gap > 1e-6 else 0.0


def gradient_quotient(loss, x, y, a, b):
    gap = distance(a, b)
    change = loss.gradients(a, x, y) - loss.gradients(b, x, y)
    return dual_norms(change)[0] / gap if gap > 1e-6 else 0.0


def curvature_quotient(loss, x, y, a, b):
    """Six times the remainder of the second-order expansion over the distance cubed."""
    gap = distance(a, b)
    if gap < 1e-2:
        return 0.0
    step, h = b - a, 1e-4
    gradient = loss.gradients(a, x, y)[0]
    ahead, behind = loss.gradients(a + h * step, x, y)[0], loss.gradients(a - h * step, x, y)[0]
    bent = ((ahead - behind) / (2 * h) * step).sum()
    change = loss.values(b, x, y)[0] - loss.values(a, x, y)[0]
    return 6 * abs(change - (gradient * step).sum() - bent / 2) / gap**3


def largest_quotient(quotient, loss, X, y, row, case, rng, starts=5):
    """Search for the largest quotient for one row, from starts near and far."""
    of_row = partial(quotient, loss, one(X, row), one(y, row))
    scales = np.geomspace(0.1, 30.0, starts)
    return max(climb(of_row, (scale * case.theta(rng), scale * case.theta(rng)), rng) for scale in scales)
