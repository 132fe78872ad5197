"""Compiled code computes what NumPy and SciPy do, and is not needed."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

import skfw
from skfw import HFWMatrixCompletion
from skfw.engine import EntryMatrix, ObservedEntries, products_at, thread_pool
from skfw.engine.data import _kernels
from skfw.engine.data._kernels import inner_products, is_compiled, times

PRECISIONS = {np.float32: 1e-6, np.float64: 1e-15}
precisions = pytest.mark.parametrize("kind", PRECISIONS)
index_types = pytest.mark.parametrize("index_type", [np.int32, np.int64, ">i4"])
NEVER = 10**18


def use(monkeypatch, which):
    if which == "compiled":
        pytest.importorskip("numba")
    for name in ("_MANY_ENTRIES", "_MANY_ENTRIES_ONCE"):
        monkeypatch.setattr(_kernels, name, 0 if which == "compiled" else NEVER)
    assert is_compiled(10) == (which == "compiled")


@pytest.fixture(params=["numpy", "compiled"])
def either(request, monkeypatch):
    """Each way of computing, in blocks so small that there are several."""
    use(monkeypatch, request.param)
    for name, size in (("_BLOCK", 64), ("_WIDTH", 3), ("_GATHERED_BLOCK", 20)):
        monkeypatch.setattr(_kernels, name, size)


@pytest.fixture
def helped(monkeypatch):
    """A helper that is called however short the work is."""
    monkeypatch.setattr("skfw.engine._threads._LONG", 0.0)
    with threadpool_limits(2, user_api="blas"):
        yield


def some_matrix(kind=np.float64, shape=(40, 25), index_type=np.int32):
    """A CSR matrix with a full row, empty rows at both ends and between, and empty columns."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.3)
    dense[[0, 7, -1]] = 0.0
    dense[:, [0, 11, -1]] = 0.0
    dense[3] = 1.0
    matrix = sparse.csr_matrix(dense.astype(kind))
    matrix.indices, matrix.indptr = matrix.indices.astype(index_type), matrix.indptr.astype(index_type)
    return matrix


def close_to(found, expected, kind):
    assert found.dtype == kind
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=100 * PRECISIONS[kind])


@precisions
@index_types
@pytest.mark.parametrize("rank", [0, 1, 3, 19])
@pytest.mark.parametrize("n_entries", [0, 1, 200])
@pytest.mark.parametrize("ordered", [False, True])
def test_inner_products(either, kind, index_type, rank, n_entries, ordered):
    """Of entries in any order or row by row, some of them repeatedly."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(9, rank)).astype(kind), rng.normal(size=(6, rank)).astype(kind)
    rows, columns = (rng.integers(0, n, n_entries).astype(index_type) for n in (9, 6))
    if ordered:
        rows.sort()
    expected = np.sum(left[rows] * right[columns], axis=1, dtype=np.float64)
    for factors in ((left, right), (np.asfortranarray(left), right[:, ::-1][:, ::-1])):
        close_to(inner_products(*factors, rows, columns), expected, kind)
    close_to(products_at(left, right, rows, columns), expected, kind)
    close_to(ObservedEntries(rows, columns, (9, 6)).products(left, right), expected, kind)
    every_second = slice(None, None, 2)
    found = inner_products(left, right, rows[every_second], columns[every_second])
    close_to(found, expected[every_second], kind)


@precisions
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (10,)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_times(either, kind, index_type, shape, order):
    matrix, rng = some_matrix(kind, index_type=index_type), np.random.default_rng(1)
    for each, exact in ((matrix, matrix.toarray()), (matrix.T, matrix.toarray().T)):
        dense = np.asarray(rng.normal(size=(exact.shape[1], *shape)), dtype=kind, order=order)
        expected = exact.astype(np.float64) @ dense.astype(np.float64)
        close_to(times(each, dense), expected, kind)
        close_to(EntryMatrix(each) @ dense, expected, kind)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (4, 5)])
def test_times_without_entries(either, shape):
    matrix = sparse.csr_matrix(shape)
    for each in (matrix, matrix.T):
        for dense in (np.ones(each.shape[1]), np.ones((each.shape[1], 4))):
            np.testing.assert_array_equal(times(each, dense), np.zeros((each.shape[0], *dense.shape[1:])))


def test_mixed_precisions(either):
    single, double = some_matrix(np.float32), some_matrix(np.float32).astype(np.float64)
    for dense in (np.full(25, 1 / 3), np.full((25, 4), 1 / 3)):
        close_to(times(single, dense), double @ dense, np.float64)
        rounded = dense.astype(np.float32)
        close_to(times(double, rounded), double @ rounded.astype(np.float64), np.float64)
    factor, both = np.full((3, 2), 0.1, dtype=np.float32), np.array([0, 2])
    close_to(inner_products(factor, np.ones((3, 2)), both, both), 2.0 * factor[:2, 0], np.float64)


def test_numbers_that_are_not_finite(either):
    """Each counts where it belongs and nowhere else, and those of opposite signs make no number."""
    dense = np.ones((25, 6))
    dense[2, 0], dense[3, 1], dense[4, 2], dense[5, 2] = np.nan, np.inf, np.inf, -np.inf
    matrix = some_matrix()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(times(matrix, dense), matrix @ dense, rtol=1e-12)
        expected = np.array([np.sum(dense[i] * dense[j]) for i in range(6) for j in range(6)])
        rows, columns = np.divmod(np.arange(36), 6)
        np.testing.assert_array_equal(inner_products(dense, dense, rows, columns), expected)
    infinite = sparse.csr_matrix(np.array([[np.inf, 1.0], [0.0, np.nan]]))
    np.testing.assert_array_equal(times(infinite, np.ones(2)), [np.inf, np.nan])
    np.testing.assert_array_equal(times(infinite.T, np.ones((2, 1))), [[np.inf], [np.nan]])


def test_shapes_that_do_not_fit(either):
    """They are errors, and nothing is read beyond the end of an array."""
    matrix, entries = some_matrix(), ObservedEntries(np.arange(3), np.arange(3), (3, 4))
    for dense in (np.ones(24), np.ones((26, 5))):
        with pytest.raises(ValueError):
            times(matrix, dense)
    for left, right in (((3, 2), (4, 3)), ((2, 2), (4, 2)), ((3, 2), (3, 2))):
        with pytest.raises(ValueError):
            entries.products(np.ones(left), np.ones(right))


@precisions
def test_helpers_do_not_change_a_bit(either, helped, kind):
    rng, matrix = np.random.default_rng(0), some_matrix(kind, (100, 80))
    left, right = rng.normal(size=(100, 20)).astype(kind), rng.normal(size=(80, 20)).astype(kind)
    rows, columns = matrix.nonzero()

    def products():
        return [
            inner_products(left, right, rows, columns),
            times(matrix, right),
            times(matrix.T, left),
            times(matrix, right[:, 0]),
            times(matrix.T, left[:, 0]),
        ]

    alone = products()
    for _ in range(5):
        with thread_pool():
            for found, expected in zip(products(), alone, strict=True):
                np.testing.assert_array_equal(found, expected)


def low_rank_entries():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(70, 3)) @ rng.normal(size=(3, 50)) + rng.normal(size=(70, 1))
    entries = rng.permutation(np.argwhere(rng.uniform(size=truth.shape) < 0.2))
    return entries, truth[tuple(entries.T)] + 0.1 * rng.normal(size=len(entries))


def test_a_fit_with_helpers_has_the_same_bits(either, helped):
    models = []
    for limit in (1, 2):
        with threadpool_limits(limit, user_api="blas"):
            models.append(HFWMatrixCompletion(random_state=0).fit(*low_rank_entries()))
    np.testing.assert_array_equal(models[0].row_factors_, models[1].row_factors_)
    assert models[0].gap_ == models[1].gap_


@pytest.mark.parametrize("tol", [5e-2, 1e-5])
def test_fits_with_and_without_compiled_code_agree(monkeypatch, tol):
    entries, values = low_rank_entries()
    models = []
    for which in ("numpy", "compiled"):
        use(monkeypatch, which)
        models.append(HFWMatrixCompletion(tol=tol, random_state=0).fit(entries, values))
    for one, other in (models, models[::-1]):
        assert one.converged_
        assert one.lower_bound_ <= other.objective_ <= one.objective_ + other.gap_
    # Runs that differ by rounding may differ by as much as their certificates allow, but hardly do.
    np.testing.assert_allclose(models[0].predict(entries), models[1].predict(entries), atol=0.1 * tol**0.5)


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    _kernels._compiled.cache_clear()
    try:
        assert not is_compiled(NEVER)
        monkeypatch.setattr(_kernels, "_MANY_ENTRIES", 0)
        matrix, dense = some_matrix(), np.ones((25, 2))
        np.testing.assert_array_equal(times(matrix, dense), matrix @ dense)
    finally:
        _kernels._compiled.cache_clear()


def test_two_threads_that_compile_at_once(monkeypatch):
    use(monkeypatch, "compiled")
    _kernels._compiled.cache_clear()
    matrix, dense, start = some_matrix(), np.ones((25, 7)), Barrier(2)

    def product(_):
        start.wait(60)
        return times(matrix, dense)

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(product, range(2)):
            np.testing.assert_allclose(found, matrix @ dense, atol=1e-13)


def run(script, **environment):
    """Run a script in a process of its own, with this checkout first and with warnings as errors."""
    here = str(Path(__file__).parent)
    paths = [environment.pop("PYTHONPATH", str(Path(skfw.__file__).parents[1])), here]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        cwd=here,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SMALL_FIT = """
import sys
import numpy as np
from skfw import HFWMatrixCompletion
entries = np.argwhere(np.random.default_rng(0).uniform(size=(30, 20)) < 0.5)
model = HFWMatrixCompletion(random_state=0).fit(entries, entries.sum(axis=1))
model.predict(entries)
print("numba" in sys.modules)
"""


def test_little_data_does_not_import_numba():
    assert run(SMALL_FIT) == "False\n"


MANY_PRODUCTS = """
import sys
import numpy as np
from skfw.engine import ObservedEntries, products_at
n = {n_entries}
rows = columns = np.repeat(np.arange(1000, dtype=np.int32), n // 1000)
products = ObservedEntries(rows, columns, (1000, 1000)).products if {in_a_fit} else products_at
factors = np.ones((1000, 2))
found = products(factors, factors) if {in_a_fit} else products(factors, factors, rows, columns)
assert np.all(found == 2.0)
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("in_a_fit", [True, False])
def test_much_data_imports_numba(in_a_fit):
    """And one product alone needs more than a fit to pay for that."""
    pytest.importorskip("numba")
    many = _kernels._MANY_ENTRIES or 300_000
    assert run(MANY_PRODUCTS.format(n_entries=many, in_a_fit=in_a_fit)) == f"{in_a_fit}\n"


IN_A_CHILD = """
import multiprocessing
import numpy as np
import test_kernels as t

def product(_):
    return t.times(t.some_matrix(), np.ones((25, 2)))

t._kernels._MANY_ENTRIES = 0
here = product(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(np.array_equal(here, there) for there in pool.map(product, range(4)))
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
def test_children_of_a_process_that_has_compiled():
    pytest.importorskip("numba")
    run(IN_A_CHILD)


COMPILED = """
import numpy as np
import test_kernels as t
t._kernels._MANY_ENTRIES = 0
assert t.is_compiled(0)
found = t.times(t.some_matrix(), np.ones((25, 2)))
np.testing.assert_allclose(found, t.some_matrix() @ np.ones((25, 2)), atol=1e-13)
print(t.skfw.__file__)
"""


def test_no_folder_for_compiled_code(tmp_path):
    """A copy of the package that has a file where numba would make a folder, and no home to go to instead."""
    pytest.importorskip("numba")
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(Path(skfw.__file__).parent, tmp_path / "skfw", ignore=ignored)
    (package / "engine" / "data" / "__pycache__").touch()
    nowhere = str(tmp_path / "file" / "folder")
    (tmp_path / "file").touch()
    homes = dict.fromkeys(["HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "NUMBA_CACHE_DIR"], nowhere)
    printed = run(COMPILED, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1", **homes)
    assert Path(printed.strip()) == package / "__init__.py"
