"""What a fit allocates."""

import numpy as np
import pytest
from problems import peak_of
from scipy import sparse

from skfw import HFWLogisticRegression, HFWMatrixCompletion
from skfw.engine import design_matrix

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("constraint", ["l1", "l2"])
@pytest.mark.parametrize("step_size", ["directional", "line_search"])
@pytest.mark.parametrize("corrective", [False, True])
def test_csr_is_copied_once(constraint, step_size, corrective):
    rng = np.random.default_rng(0)
    X = sparse.random(20_000, 1_000, 0.1, format="csr", random_state=rng)
    y = rng.integers(0, 2, 20_000)
    one_copy = peak_of(X.tocsc)
    model = HFWLogisticRegression(
        constraint, step_size=step_size, corrective=corrective, max_iter=10, tol=0.0
    )
    # Correctors hold a sample of the rows, by rows and by columns, and the active columns.
    extra = 25 * 8 * sum(X.shape) + corrective * one_copy
    assert peak_of(lambda: model.fit(X, y)) < one_copy + extra
    csc = X.tocsc()
    assert peak_of(lambda: model.fit(csc, y)) < extra + corrective * 0.125 * one_copy


@pytest.mark.parametrize("corrective", [False, True])
def test_dense_is_not_copied(corrective):
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        X, y = rng.normal(size=(20_000, 200)).astype(dtype), rng.integers(0, 2, 20_000)
        model = HFWLogisticRegression("l2", corrective=corrective, max_iter=10, tol=0.0)
        assert peak_of(lambda X=X, y=y, model=model: model.fit(X, y)) < X.nbytes * (
            0.75 if corrective else 0.5
        )


@pytest.mark.parametrize("order", ["C", "F"])
def test_of_dense_data_only_the_columns_needed_are_copied(order):
    design = design_matrix(np.asarray(np.random.default_rng(0).normal(size=(20_000, 50)), order=order))
    assert peak_of(lambda: design.restrict(np.arange(0, 50, 10))) < 1.1 * 8 * 20_000 * 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("corrective", [False, True])
def test_completion_never_forms_the_matrix(corrective):
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_entries, n_iter = 20_000, 15_000, 60_000, 8
    entries = np.column_stack([rng.integers(0, n_rows, n_entries), rng.integers(0, n_columns, n_entries)])
    model = HFWMatrixCompletion(implicit="none", max_iter=n_iter, corrective=corrective, random_state=0)
    peak = peak_of(lambda: model.fit(entries, rng.normal(size=n_entries)))
    assert peak < 8 * n_rows * n_columns / 10  # a fraction of the dense matrix, 2.4 GB
    rank = 50 if corrective else n_iter
    assert peak < 8 * (30 * n_entries + (n_rows + n_columns) * (20 + 10 * rank))


def test_completion_of_many_entries():
    rng = np.random.default_rng(0)
    positions = np.sort(rng.choice(20_000 * 1_000, 400_000, replace=False))
    entries = np.column_stack(np.divmod(positions, 1_000))
    values = rng.normal(size=len(entries))
    model = HFWMatrixCompletion(2.0, implicit="none", max_iter=3, random_state=0)
    model.fit(entries, values)  # where there is numba, it is imported now
    peak = peak_of(lambda: model.fit(entries, values))
    # Without the factors, which do not grow with the entries.
    assert peak - 10 * 4 * 21_000 * 40 < 8 * 22 * len(entries)


def test_a_long_run_holds_the_rank_not_the_iterations():
    rng = np.random.default_rng(0)
    entries = np.argwhere(rng.uniform(size=(60, 5)) < 0.9)
    values = rng.normal(size=len(entries))
    model = HFWMatrixCompletion(max_iter=2_000, tol=0.0, corrective=False, random_state=0)
    model.fit(entries, values)
    assert model.trace_["atoms"].max() <= 64
    assert model.rank_ <= 5
