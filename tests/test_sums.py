import numpy as np
import pytest

from skfw.engine._sums import SUM_ROUNDING, column_sums, euclidean_norm, inner


@pytest.mark.parametrize("block", [1 << 18, 1000])
def test_sum_of_many_products(block, monkeypatch):
    monkeypatch.setattr("skfw.engine._sums._BLOCK", block)
    a, b = np.random.default_rng(0).normal(size=(2, 30_001))
    exact = float((a.astype(np.longdouble) * b.astype(np.longdouble)).sum())
    assert inner(a, b) == pytest.approx(exact, abs=1e-14 * np.abs(a * b).sum())


def test_products_of_matrices_are_summed_over_all_entries(monkeypatch):
    monkeypatch.setattr("skfw.engine._sums._BLOCK", 10)
    a, b = np.random.default_rng(0).normal(size=(2, 95, 3))
    assert inner(a, b) == pytest.approx(np.vdot(a, b), rel=1e-12)


def test_long_sums_lose_no_digits():
    """A million equal terms: added in sequence they would lose five digits."""
    a = np.full(3_000_000, 0.1)
    assert inner(a, np.ones_like(a)) == pytest.approx(float(a.astype(np.longdouble).sum()), rel=1e-14)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_norm_of_extreme_numbers(scale):
    x = np.array([[3.0, 0.0], [0.0, -4.0]])
    assert euclidean_norm(scale * x) == pytest.approx(5.0 * scale, rel=1e-15)
    assert euclidean_norm(np.zeros((0, 3))) == 0.0
    assert euclidean_norm(scale * np.arange(10.0)[::3]) == pytest.approx(scale * np.sqrt(126.0))


def test_many_blocks_lose_no_digits(monkeypatch):
    """The sums of blocks are added up exactly: in sequence, so many of them would lose three digits."""
    monkeypatch.setattr("skfw.engine._sums._BLOCK", 4)
    a = np.full(100_000, 0.1)
    exact = float(a.astype(np.longdouble).sum())
    assert abs(inner(a, np.ones_like(a)) - exact) <= 4 * np.finfo(float).eps * exact


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_lose_no_digits(order):
    x = np.asarray(np.tile([0.1, -0.7, 1e8], (300_000, 1)), order=order)
    exact = x.astype(np.longdouble).sum(axis=0)
    np.testing.assert_allclose(column_sums(x), exact.astype(float), rtol=SUM_ROUNDING / 2)


def test_a_long_norm_loses_no_digits():
    x = np.full(1_000_000, 0.3)
    exact = float(np.sqrt((x.astype(np.longdouble) ** 2).sum()))
    assert abs(euclidean_norm(x) - exact) <= SUM_ROUNDING / 2 * exact
