import numpy as np
import pytest

from skfw.engine._eigenvalues import largest_eigenvalue, start_noise


def spectrum(kind, size, rng):
    if kind == "bulk":
        return rng.uniform(size=size)
    if kind == "outlier":
        return np.append(rng.uniform(size=size - 1), 1.5)
    if kind == "cluster":
        return np.append(rng.uniform(0, 0.5, size=size - 6), 1.0 - 1e-9 * np.arange(6))
    return np.zeros(size)


@pytest.mark.parametrize("near", ["none", "leading", "second", "orthogonal"])
@pytest.mark.parametrize("kind", ["bulk", "outlier", "cluster", "zero"])
@pytest.mark.parametrize("width", [0.3, 1e-2, 1e-6])
def test_enclosure_holds_and_is_as_tight_as_asked(kind, near, width):
    rng = np.random.default_rng(0)
    for seed in range(10):
        values = np.sort(spectrum(kind, 150, rng))[::-1]
        basis = np.linalg.qr(rng.normal(size=(150, 150)))[0]
        A = (basis * values) @ basis.T
        # A start that misses the leading eigenvector entirely is what a bound from the residual falls for.
        hint = {"none": None, "leading": basis[:, 0], "second": basis[:, 1], "orthogonal": basis[:, -1]}[near]
        found = largest_eigenvalue(
            lambda v, A=A: A @ v,
            150,
            np.random.default_rng([7, seed]),
            lambda value, upper: upper - value <= width * value,
            near=hint,
        )
        rounding = 1e-12
        assert found.value - rounding <= values[0] <= found.upper + rounding
        assert found.upper - found.value <= width * found.value + rounding
        assert found.vector @ A @ found.vector == pytest.approx(found.value, abs=1e-12)
        assert np.linalg.norm(found.vector) == pytest.approx(1.0)


def test_a_krylov_space_that_misses_the_leading_vector():
    """All eigenvalues but one coincide, and the start hardly touches that one: it breaks down at once."""

    class Unlucky:
        def standard_normal(self, size):
            noise = np.ones(size)
            noise[0] = 1e-6  # less than this happens once in a million
            return noise

    values = np.ones(120)
    values[0] += 1e-9
    found = largest_eigenvalue(
        lambda v: values * v, 120, Unlucky(), lambda value, upper: False, near=np.eye(120)[1]
    )
    assert found.value < values[0] <= found.upper


def test_it_stops_early_when_little_is_asked():
    calls = []

    def apply(v):
        calls.append(1)
        return np.linspace(0, 1, 2000) * v

    largest_eigenvalue(apply, 2000, np.random.default_rng(0), lambda value, upper: upper <= 2 * value)
    assert len(calls) < 60


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_operators(size):
    found = largest_eigenvalue(
        lambda v: np.arange(1.0, size + 1) * v, size, np.random.default_rng(0), lambda value, upper: False
    )
    assert found.value == pytest.approx(size)
    assert found.upper == pytest.approx(size)


@pytest.mark.parametrize("size", [2, 7, 40, 130])
@pytest.mark.parametrize("width", [np.inf, 0.1, 1e-6])
def test_upper_bound_of_many_random_operators(size, width):
    """Also where the iteration ends at the first question, after a handful of steps."""
    rng = np.random.default_rng(1)
    for trial in range(100):
        factor = rng.normal(size=(size, int(rng.integers(1, 2 * size)))) * 10.0 ** rng.uniform(-60, 60)
        A = factor @ factor.T
        exact = np.linalg.eigvalsh(A)[-1]
        near = rng.normal(size=size) if trial % 2 else None
        found = largest_eigenvalue(
            lambda v, A=A: A @ v,
            size,
            np.random.default_rng([9, trial]),
            lambda value, upper: upper - value <= width * value,
            near=None if near is None else near / np.linalg.norm(near),
        )
        rounding = 1e-13 * size
        assert found.value * (1 - rounding) <= exact <= found.upper * (1 + rounding)
        # Where the operator has a null space, that of Krylov may end before the bound is as tight as asked.
        if np.isfinite(width) and factor.shape[1] >= size:
            assert found.upper - found.value <= (width + rounding) * found.value


def test_upper_bound_is_not_absurd():
    """Six steps with a random start say something; the growth of the polynomial says how much."""
    values = np.linspace(0.0, 1.0, 500)
    found = largest_eigenvalue(lambda v: values * v, 500, np.random.default_rng(0), lambda value, upper: True)
    assert 1.0 <= found.upper <= 100.0


def test_noise_depends_on_all_of_the_seed():
    draws = [start_noise(*seed).standard_normal(5) for seed in ((), (1,), (1, 2), (2, 1), (1, 2**63))]
    for i, a in enumerate(draws):
        assert not np.allclose(a, np.random.default_rng(0).standard_normal(5))
        for b in draws[:i]:
            assert not np.allclose(a, b)


@pytest.mark.parametrize("top", [1.1, 1.5])
@pytest.mark.parametrize("probability", [0.3, 0.1, 0.03])
def test_the_bound_is_wrong_no_more_often_than_it_says(top, probability, monkeypatch):
    """Started at a vector that has nothing of the leading one, but for the noise, and stopped early."""
    monkeypatch.setattr("skfw.engine._eigenvalues.FAILURE_PROBABILITY", probability)
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values = np.sort(np.append(rng.uniform(size=149), top))[::-1]
        found = largest_eigenvalue(
            lambda v, values=values: values * v, 150, rng, lambda value, upper: True, near=np.eye(150)[1]
        )
        wrong += found.upper < top
    assert wrong <= 300 * probability
