import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from problems import dense_completion
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score

from skfw import HFWMatrixCompletion, matrix_to_entries
from skfw._matrix_completion import _stable_order
from skfw.engine import L1Ball, NuclearBall


def made_data(shape=(40, 25), rank=2, share=0.6, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1])) + 2.0
    entries = np.argwhere(rng.uniform(size=shape) < share)
    rng.shuffle(entries)
    return entries, truth[tuple(entries.T)] + noise * rng.normal(size=len(entries)), truth


ENTRIES, VALUES, TRUTH = made_data()
EVERYWHERE = np.argwhere(np.ones_like(TRUTH))


def rmse(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


def check_certificate(model, entries, values):
    """The objective is that of the predictions, and the bound lies below it by the gap."""
    size = np.abs(values).max() or 1.0  # tiny numbers have no squares, huge ones no sums of them
    biases = np.concatenate([model.row_biases_, model.column_biases_]) / size
    penalty = 0.0 if model.bias_penalty is None else model.bias_penalty / len(values)
    squares = rmse(model.predict(entries) / size, values / size) ** 2
    objective = 0.5 * (squares + penalty * biases @ biases)
    assert model.objective_ / size / size == pytest.approx(objective, rel=1e-9, abs=1e-20)
    assert 0.0 <= model.gap_ < np.inf
    assert model.lower_bound_ <= model.objective_
    assert model.gap_ == pytest.approx(model.objective_ - model.lower_bound_, abs=1e-12 * model.objective_)
    for name in ("objective", "lower_bound", "gap"):
        assert model.trace_[name][-1] == pytest.approx(getattr(model, f"{name}_"), rel=1e-12, abs=0.0)


@pytest.mark.parametrize("n_numbers", [40, 2**60])
def test_entries_are_sorted_and_repeated_ones_keep_their_order(n_numbers):
    numbers = np.random.default_rng(0).integers(0, 40, size=200)
    np.testing.assert_array_equal(_stable_order(numbers, n_numbers), np.argsort(numbers, kind="stable"))


def test_completes_a_matrix():
    model = HFWMatrixCompletion(1.7, biases="mean", tol=1e-3, max_iter=3000, random_state=0)
    model.fit(ENTRIES, VALUES)
    assert rmse(model.predict(EVERYWHERE), TRUTH[tuple(EVERYWHERE.T)]) < 0.2
    assert model.converged_


@pytest.mark.parametrize("exponent", [None, 0.5])
@pytest.mark.parametrize("corrective", [False, True])
def test_agrees_with_a_dense_proximal_solver(exponent, corrective):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(VALUES))
    weights /= weights.sum()
    radius, (rows, columns), norm = 0.7, ENTRIES.T, 1.0
    model = HFWMatrixCompletion(
        radius, biases="none", implicit="none", tol=1e-3, max_iter=5000, random_state=0
    )
    if exponent is None:
        model.set_params(constraint="nuclear")
    else:
        model.set_params(weight_exponent=exponent)
        # Entries of the matrix in the ball are those of the model times this.
        row_powers, column_powers = (np.bincount(ids, weights) ** exponent for ids in (rows, columns))
        norm = row_powers[rows] / np.sqrt(np.mean(row_powers**2))
        norm = norm * column_powers[columns] / np.sqrt(np.mean(column_powers**2))
    model.set_params(corrective=corrective).fit(ENTRIES, VALUES, weights)
    optimum = dense_completion(
        TRUTH.shape, rows, columns, VALUES * norm, weights / norm**2, radius * np.linalg.norm(VALUES)
    )
    null = 0.5 * weights @ VALUES**2
    assert model.converged_
    assert model.lower_bound_ <= optimum + 1e-9 * null
    assert optimum - 1e-9 * null <= model.objective_ <= optimum + 1.1e-3 * null


def test_biases_are_fitted_together_with_the_matrix():
    """Each of three alternations from the fit lowers nothing: biases for the matrix, and back."""
    model = HFWMatrixCompletion(1.0, tol=1e-6, bias_penalty=3.0, random_state=0).fit(ENTRIES, VALUES)
    rows, columns = ENTRIES.T
    matrix = (model.row_factors_ @ model.column_factors_.T)[rows, columns]
    left = VALUES - model.mean_ - matrix
    expected = np.bincount(rows, left - model.column_biases_[columns]) / (np.bincount(rows) + 3.0)
    np.testing.assert_allclose(model.row_biases_, expected, atol=1e-5)
    expected = np.bincount(columns, left - model.row_biases_[rows]) / (np.bincount(columns) + 3.0)
    np.testing.assert_allclose(model.column_biases_, expected, atol=1e-5)
    plain = HFWMatrixCompletion(1.0, corrective=False, bias_penalty=3.0, random_state=0).fit(ENTRIES, VALUES)
    assert plain.lower_bound_ <= model.objective_ <= plain.objective_
    assert model.lower_bound_ <= plain.objective_


@pytest.mark.parametrize("biases", ["none", "mean", "rows", "columns", "both"])
@pytest.mark.parametrize("penalty", [None, 2.0])
def test_attributes_make_up_the_prediction(biases, penalty):
    model = HFWMatrixCompletion(
        1.0, constraint="nuclear", implicit="none", biases=biases, bias_penalty=penalty, random_state=0
    )
    model.fit(ENTRIES, VALUES)
    matrix = (
        model.mean_
        + model.row_biases_[:, np.newaxis]
        + model.column_biases_
        + model.row_factors_ @ model.column_factors_.T
    )
    np.testing.assert_allclose(model.predict(EVERYWHERE), matrix.ravel(), atol=1e-12)
    assert model.row_factors_.shape == (40, model.rank_)
    np.testing.assert_allclose(
        model.row_factors_.T @ model.row_factors_, np.diag(model.singular_values_), atol=1e-9
    )
    np.testing.assert_array_equal(model.row_ids_, np.arange(40))
    assert (model.mean_ != 0) == (biases != "none")
    assert model.row_biases_.any() == (biases in ("rows", "both"))
    assert model.column_biases_.any() == (biases in ("columns", "both"))
    ridge = 0.0 if penalty is None else penalty / len(VALUES)
    ridge *= model.row_biases_ @ model.row_biases_ + model.column_biases_ @ model.column_biases_
    assert model.objective_ == pytest.approx(0.5 * rmse(model.predict(ENTRIES), VALUES) ** 2 + 0.5 * ridge)
    if penalty is None:
        # The radius is in units of the norm of what the biases leave.
        left = VALUES - (model.mean_ + model.row_biases_[ENTRIES[:, 0]] + model.column_biases_[ENTRIES[:, 1]])
        assert model.singular_values_.sum() == pytest.approx(np.linalg.norm(left), rel=0.05)
        assert model.singular_values_.sum() <= np.linalg.norm(left) * (1 + 1e-9)
    if penalty is None and biases == "both":
        assert np.abs(np.bincount(ENTRIES[:, 1], left)).max() < 1e-12


def test_radius_without_normalisation_is_in_the_datas_units():
    unit = np.linalg.norm(VALUES)
    model = HFWMatrixCompletion(0.5, biases="none", implicit="none", random_state=0)
    normalised = clone(model).fit(ENTRIES, VALUES)
    plain = model.set_params(radius=0.5 * unit, normalize=False).fit(ENTRIES, VALUES)
    np.testing.assert_allclose(normalised.predict(ENTRIES), plain.predict(ENTRIES), rtol=1e-9)
    ball = NuclearBall(0.5 * unit)
    given = HFWMatrixCompletion(constraint=ball, biases="none", normalize=False).fit(ENTRIES, VALUES)
    assert given.objective_ == pytest.approx(plain.objective_, rel=0.05)


def test_the_radius_of_an_object_is_in_the_same_units():
    named = HFWMatrixCompletion(0.5, constraint="nuclear", implicit="none", tol=1e-6).fit(ENTRIES, VALUES)
    given = HFWMatrixCompletion(constraint=NuclearBall(0.5), tol=1e-6).fit(ENTRIES, VALUES)
    assert given.objective_ == pytest.approx(named.objective_, rel=1e-4)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("ignored", [None, -1.0, "large"])
def test_beside_an_object_radius_and_random_state_are_ignored(normalize, ignored):
    """The data is large enough for the iterative oracle, whose random numbers change the bits."""
    entries, values, _ = made_data((150, 120), share=0.3)
    ball = NuclearBall(0.5 if normalize else 0.5 * np.linalg.norm(values), random_state=3)
    expected = HFWMatrixCompletion(constraint=ball, normalize=normalize, random_state=0)
    given = HFWMatrixCompletion(ignored, constraint=ball, normalize=normalize, random_state=1)
    expected.fit(entries, values)
    np.testing.assert_array_equal(given.fit(entries, values).predict(entries), expected.predict(entries))


@pytest.mark.parametrize("constraint", ["nuclear", "weighted_nuclear"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("biases, implicit", [("mean", "none"), ("both", "none"), ("both", "columns")])
def test_the_multiplier_is_how_fast_the_objective_falls(constraint, normalize, biases, implicit):
    values = 1000.0 * VALUES
    radius = 0.8 if normalize else 0.8 * np.linalg.norm(values)
    less, model, more = (
        HFWMatrixCompletion(
            share * radius,
            constraint=constraint,
            implicit=implicit,
            normalize=normalize,
            biases=biases,
            tol=1e-8,
        ).fit(ENTRIES, values)
        for share in (0.99, 1.0, 1.01)
    )
    fall = (less.objective_ - more.objective_) / (more.radius - less.radius)
    assert model.multiplier_ == pytest.approx(fall, rel=1e-3)
    check_certificate(model, ENTRIES, values)


def test_the_models_scale_with_the_values():
    model, scaled = (
        HFWMatrixCompletion(random_state=0).fit(ENTRIES, scale * VALUES) for scale in (1.0, 1024.0)
    )
    np.testing.assert_allclose(scaled.predict(ENTRIES), 1024 * model.predict(ENTRIES), rtol=1e-9)
    assert scaled.gap_ == pytest.approx(2**20 * model.gap_)
    for name in ("objective", "lower_bound", "gap"):
        np.testing.assert_allclose(scaled.trace_[name], 2**20 * model.trace_[name])
    assert scaled.multiplier_ == pytest.approx(2**20 * model.multiplier_)


def test_unseen_ids_fall_back_to_the_biases():
    model = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES)
    predictions = model.predict([[3, 999], [999, 5], [999, 999]])
    expected = model.mean_ + np.array([model.row_biases_[3], model.column_biases_[5], 0.0])
    np.testing.assert_allclose(predictions, expected)


def test_ids_of_any_kind_give_the_same_model():
    reference = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES)
    expected = reference.predict(ENTRIES)
    users = np.array([f"user {i:02d}" for i in range(40)])[ENTRIES[:, 0]]
    films = np.array([f"film {i:02d}" for i in range(25)])[ENTRIES[:, 1]]
    frame = pd.DataFrame({"user": users, "film": films})
    mixed = pd.DataFrame({"user": ENTRIES[:, 0] + 100, "film": films})
    several = pd.DataFrame({"user": users, "genre": ENTRIES[:, 1] // 5, "number": ENTRIES[:, 1] % 5})
    for X in (ENTRIES.astype(float) / 7, np.column_stack([users, films]), frame, mixed, several):
        model = HFWMatrixCompletion(random_state=0).fit(X, VALUES)
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)
    assert list(model.feature_names_in_) == ["user", "genre", "number"]
    assert model.row_ids_[0] == "user 00"
    assert [tuple(ids) for ids in model.column_ids_[:2]] == [(0, 0), (0, 1)]
    assert len(model.column_ids_) == 25
    assert np.isfinite(model.predict(pd.DataFrame({"user": ["new"], "genre": [0], "number": [1]}))).all()


def test_large_ids_keep_their_digits():
    users = 2**60 + np.arange(40, dtype=np.uint64)
    frame = pd.DataFrame({"user": users[ENTRIES[:, 0]], "film": ENTRIES[:, 1]})
    model = HFWMatrixCompletion(random_state=0).fit(frame, VALUES)
    assert len(model.row_ids_) == 40
    expected = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES).predict(ENTRIES)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-9)


@pytest.mark.parametrize("fitted_on", ["numbers", "strings"])
def test_ids_of_another_type_are_unseen(fitted_on):
    text = ENTRIES.astype(str)
    model = HFWMatrixCompletion(random_state=0).fit(ENTRIES if fitted_on == "numbers" else text, VALUES)
    other = text if fitted_on == "numbers" else ENTRIES
    types = "int, in fit of type str" if fitted_on == "strings" else "str, in fit of type int"
    with pytest.warns(UserWarning, match=f"predict knows none of the rows in X: ids are of type {types}"):
        np.testing.assert_array_equal(model.predict(other), np.full(len(VALUES), model.mean_))
    mixed = np.array([[0, "x"], ["y", 1]], dtype=object)
    assert np.isfinite(model.predict(mixed)).all()


def test_what_the_biases_explain_entirely_is_not_fitted():
    rows, columns = ENTRIES.T
    additive = np.sin(rows) + np.cos(columns)
    complete = np.argwhere(np.ones((40, 25)))
    model = HFWMatrixCompletion(bias_penalty=None, random_state=0)
    model.fit(complete, np.sin(complete[:, 0]) + np.cos(complete[:, 1]))
    assert model.rank_ == 0
    np.testing.assert_allclose(model.predict(ENTRIES), additive, atol=1e-12)


def test_weight_is_repetition_and_zero_is_absence():
    counts = np.random.default_rng(0).integers(0, 3, len(VALUES))
    noisy = np.repeat(np.arange(len(VALUES)), counts)
    weighted = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES, counts)
    repeated = HFWMatrixCompletion(random_state=0).fit(ENTRIES[noisy], VALUES[noisy])
    absent = HFWMatrixCompletion(random_state=0).fit(
        ENTRIES[counts > 0], VALUES[counts > 0], counts[counts > 0]
    )
    # Where singular values nearly coincide, their vectors turn rounding into visible digits.
    np.testing.assert_allclose(weighted.predict(EVERYWHERE), repeated.predict(EVERYWHERE), atol=1e-4)
    np.testing.assert_allclose(weighted.predict(EVERYWHERE), absent.predict(EVERYWHERE), rtol=1e-12)
    assert weighted.objective_ == pytest.approx(repeated.objective_)
    # Without a penalty, which counts in entries, the scale of the weights means nothing.
    once, scaled = (
        HFWMatrixCompletion(bias_penalty=None, random_state=0).fit(ENTRIES, VALUES, scale * counts)
        for scale in (1.0, 7.0)
    )
    np.testing.assert_allclose(once.predict(EVERYWHERE), scaled.predict(EVERYWHERE), rtol=1e-9)


@pytest.mark.parametrize("weight", [1e308, 1e-308])
def test_weights_near_the_end_of_the_numbers(weight):
    weights = np.full(len(VALUES), weight)
    for params in ({"biases": "none"}, {"biases": "mean"}, {"bias_penalty": None}):
        expected = HFWMatrixCompletion(random_state=0, **params).fit(ENTRIES, VALUES)
        model = HFWMatrixCompletion(random_state=0, **params).fit(ENTRIES, VALUES, weights)
        np.testing.assert_allclose(model.predict(EVERYWHERE), expected.predict(EVERYWHERE), rtol=1e-9)
        check_certificate(model, ENTRIES, VALUES)
    # A penalty counts in entries: so many more make it nothing, and so many fewer leave no bias.
    biased = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES, weights)
    limit = {"bias_penalty": 1e-9} if weight > 1.0 else {"biases": "mean"}
    expected = HFWMatrixCompletion(random_state=0, **limit).fit(ENTRIES, VALUES)
    np.testing.assert_allclose(biased.predict(EVERYWHERE), expected.predict(EVERYWHERE), atol=1e-6)


def test_conflicting_values_of_one_entry_are_averaged():
    X = np.vstack([ENTRIES, ENTRIES])
    y = np.concatenate([VALUES - 0.5, VALUES + 0.5])
    twice = HFWMatrixCompletion(tol=1e-3, max_iter=5000, random_state=0).fit(X, y)
    once = HFWMatrixCompletion(tol=1e-3, max_iter=5000, random_state=0).fit(ENTRIES, VALUES)
    assert twice.objective_ == pytest.approx(once.objective_ + 0.5 * 0.5**2, rel=1e-2)


def test_cross_validation_grid_search_clone_and_pickle():
    entries, values, _ = made_data(noise=0.5)
    model = HFWMatrixCompletion(biases="mean", random_state=0)
    assert cross_val_score(model, entries, values, cv=3, error_score="raise").mean() > 0.5
    search = GridSearchCV(model, {"radius": [0.1, 1.0, 2.0]}, cv=3, error_score="raise").fit(entries, values)
    assert search.best_params_["radius"] > 0.1
    nested = GridSearchCV(
        HFWMatrixCompletion(constraint=NuclearBall(1.0)),
        {"constraint__radius": [0.1, 1.0]},
        cv=3,
        error_score="raise",
    ).fit(entries, values)
    assert nested.best_params_ == {"constraint__radius": 1.0}
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(entries), search.predict(entries))
    assert clone(copy).radius == copy.radius


def test_clip_may_be_open():
    model = HFWMatrixCompletion(clip=np.array([2.0, np.inf]), random_state=0).fit(ENTRIES, VALUES)
    assert model.predict(EVERYWHERE).min() == 2.0
    model.set_params(clip=(-np.inf, 1)).fit(ENTRIES, VALUES)
    assert model.predict(EVERYWHERE).max() == 1.0
    model.set_params(clip=(None, 1)).fit(ENTRIES, VALUES)
    assert model.predict(EVERYWHERE).max() == 1.0
    assert model.predict(EVERYWHERE).min() < 0.0
    free = HFWMatrixCompletion(clip=(None, None), random_state=0).fit(ENTRIES, VALUES)
    np.testing.assert_array_equal(free.predict(EVERYWHERE), free.set_params(clip=None).predict(EVERYWHERE))


def test_clip():
    model = HFWMatrixCompletion(clip=(1.5, 2.5), random_state=0).fit(ENTRIES, VALUES)
    predictions = model.predict(EVERYWHERE)
    assert predictions.min() == 1.5
    assert predictions.max() == 2.5


def test_random_state_decides_the_bits():
    entries, values, _ = made_data((150, 120), share=0.3)  # large enough for the iterative oracle
    first, second, other = (HFWMatrixCompletion(random_state=s).fit(entries, values) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.predict(entries), second.predict(entries))
    assert not np.array_equal(first.predict(entries), other.predict(entries))
    np.testing.assert_allclose(first.objective_, other.objective_, rtol=0.05)


def test_warm_start_with_other_ids():
    model = HFWMatrixCompletion(warm_start=True, random_state=0).fit(ENTRIES, VALUES)
    objective, steps = model.objective_, model.n_iter_
    model.fit(ENTRIES, VALUES)
    assert model.trace_["objective"][0] == pytest.approx(objective)
    assert model.n_iter_ < steps
    new = np.vstack([ENTRIES[ENTRIES[:, 0] > 5], [[100, 0], [0, 100]]])
    model.set_params(radius=0.5).fit(new, np.append(VALUES[ENTRIES[:, 0] > 5], [2.0, 2.0]))
    assert model.converged_
    assert len(model.row_ids_) == 36
    model.fit(np.column_stack([ENTRIES, ENTRIES[:, 1]]), VALUES)  # columns named otherwise: from zero
    assert model.converged_


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_warm_start_keeps_all_digits(kind):
    values = VALUES.astype(kind)
    model = HFWMatrixCompletion(0.8, tol=1e-6, warm_start=True, random_state=0).fit(ENTRIES, values)
    objective, predictions = model.objective_, model.predict(ENTRIES)
    assert model.row_factors_.dtype == predictions.dtype == np.float64
    model.fit(ENTRIES, values)
    assert model.trace_["objective"][0] == pytest.approx(objective, rel=1e-10)
    exact = HFWMatrixCompletion(0.8, tol=1e-6, random_state=0).fit(ENTRIES, values.astype(np.float64))
    np.testing.assert_array_equal(exact.predict(ENTRIES), predictions)


def test_not_converged_says_so():
    with pytest.warns(ConvergenceWarning, match="certified gap"):
        model = HFWMatrixCompletion(corrective=False, max_iter=2, random_state=0).fit(ENTRIES, VALUES)
    assert model.rank_ <= 2


@pytest.mark.parametrize(
    "entries, values",
    [
        ([[0, 0]], [3.0]),
        ([[0, 0], [1, 1]], [3.0, 3.0]),
        (EVERYWHERE, np.full(len(EVERYWHERE), 4.2)),
        (ENTRIES, 0.0 * VALUES),
        (ENTRIES, 1e150 * VALUES),
        (ENTRIES, 1e-150 * VALUES),
    ],
    ids=["one entry", "diagonal", "constant", "zero", "huge", "tiny"],
)
@pytest.mark.parametrize("radius", [1e-12, 1.0])
@pytest.mark.parametrize("biases", ["none", "mean", "both"])
def test_odd_data(entries, values, radius, biases):
    values = np.asarray(values)
    model = HFWMatrixCompletion(radius, constraint="nuclear", implicit="none", biases=biases, random_state=0)
    predictions = model.fit(entries, values).predict(entries)
    check_certificate(model, entries, values)
    assert model.converged_
    if biases != "both":
        norm = np.linalg.norm(values - model.mean_)
        assert model.singular_values_.sum() <= radius * norm * (1.0 + 1e-9)
    if biases != "none" and len(set(values)) == 1:
        np.testing.assert_allclose(predictions, values, rtol=1e-9)


@pytest.mark.parametrize("radius", [1e3, 1e12])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_huge_radius_interpolates(radius):
    model = HFWMatrixCompletion(radius, max_iter=200, random_state=0).fit(ENTRIES, VALUES)
    assert np.isfinite(model.predict(EVERYWHERE)).all()
    check_certificate(model, ENTRIES, VALUES)
    assert np.mean((model.predict(ENTRIES) - VALUES) ** 2) <= model.tol * VALUES.var()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_values_must_be_finite(bad):
    values = VALUES.copy()
    values[3] = bad
    with pytest.raises(ValueError, match=r"infinity|NaN"):
        HFWMatrixCompletion().fit(ENTRIES, values)


def test_an_empty_matrix_is_refused():
    with pytest.raises(ValueError, match="0 sample"):
        HFWMatrixCompletion().fit(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ValueError, match="0 sample"):
        HFWMatrixCompletion().fit(*matrix_to_entries(np.full((3, 2), np.nan)))


def test_rows_and_columns_without_entries():
    matrix = np.full((41, 26), np.nan)
    matrix[tuple(ENTRIES.T)] = VALUES  # the last row and the last column have none
    model = HFWMatrixCompletion(random_state=0).fit(*matrix_to_entries(matrix))
    assert (len(model.row_ids_), len(model.column_ids_)) == (40, 25)
    completed = model.predict(np.argwhere(np.ones_like(matrix))).reshape(matrix.shape)
    np.testing.assert_allclose(completed[40, :25], model.mean_ + model.column_biases_)
    np.testing.assert_allclose(completed[:40, 25], model.mean_ + model.row_biases_)
    assert completed[40, 25] == model.mean_


def test_an_interrupted_fit_leaves_the_last_model(monkeypatch):
    model = HFWMatrixCompletion(warm_start=True, random_state=0).fit(ENTRIES[:100], VALUES[:100])
    before = model.predict(ENTRIES)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("skfw._certified.frank_wolfe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(ENTRIES, VALUES)
    np.testing.assert_array_equal(model.predict(ENTRIES), before)
    assert model.fit(ENTRIES, VALUES).converged_


def test_ids_of_frames_and_lists_are_kept():
    large = pd.DataFrame({"row": [2**53, 2**53 + 1] * 2, "column": [1, 1, 2, 2]}).astype("Int64")
    model = HFWMatrixCompletion(random_state=0).fit(large, [1.0, 2.0, 3.0, 4.0])
    assert model.row_ids_.tolist() == [2**53, 2**53 + 1]
    mixed = np.array([["a", 1], ["b", 1], ["a", 2], ["b", 2]], dtype=object)
    model = HFWMatrixCompletion(random_state=0).fit(mixed, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(model.predict(mixed.tolist()), model.predict(mixed))
    for kind in ("Int64", "string"):
        unnamed = pd.DataFrame({"row": [1, None], "column": [1, 2]}).astype(kind)
        with pytest.raises(ValueError, match=r"entry 1 has .* as its row id"):
            HFWMatrixCompletion().fit(unnamed, [1.0, 2.0])


def test_ids_of_mixed_type():
    """They are sorted by the names of their types, then by their values."""
    names = np.array([i if i % 2 else f"user {i}" for i in range(40)], dtype=object)
    entries = np.column_stack([names[ENTRIES[:, 0]], ENTRIES[:, 1]]).astype(object)
    model = HFWMatrixCompletion(tol=1e-6, random_state=0).fit(entries, VALUES)
    expected = HFWMatrixCompletion(tol=1e-6, random_state=0).fit(ENTRIES, VALUES)
    assert model.row_ids_.tolist() == [*range(1, 40, 2), *sorted(f"user {i}" for i in range(0, 40, 2))]
    np.testing.assert_allclose(model.predict(entries), expected.predict(ENTRIES), atol=1e-2)
    order = [names.tolist().index(name) for name in model.row_ids_]
    np.testing.assert_allclose(model.row_biases_, expected.row_biases_[order], atol=1e-2)


def with_another_feature(kind):
    """Return what names the entries of a large sparse matrix, with something that belongs to no id."""
    rng = np.random.default_rng(0)
    entries = np.argwhere(rng.uniform(size=(60, 50)) < 0.2)
    times = rng.permutation(len(entries))
    return {
        "time": pd.DataFrame({"user": entries[:, 0], "item": entries[:, 1], "time": times}),
        "number": pd.DataFrame({"number": times, "user": entries[:, 0], "item": entries[:, 1]}),
        "user": pd.DataFrame({"owner": entries[:, 0], "item": entries[:, 1], "user": entries[:, 0]}),
        "measurements": rng.normal(size=(300, 2)),
        "times": np.column_stack([entries[:, 0], times]),
    }[kind]


@pytest.mark.parametrize(
    "kind, message",
    [
        ("time", r"in nearly every column, from .* Without X\[:, 2\] \('time'\) the ids would repeat"),
        (
            "number",
            r"in nearly every row and nearly every column, .* Without X\[:, 0\] \('number'\) the ids would",
        ),
        ("user", r"in nearly every column, from .* Without X\[:, 2\] \('user'\) the ids would repeat"),
        (
            "measurements",
            r"in nearly every row and nearly every column, .* X\[:, 0\] has numbers such as 0\.1",
        ),
        ("times", "in nearly every column, from .* Are these the ids of rows and columns"),
    ],
)
def test_features_that_are_no_ids_are_doubted(kind, message):
    X = with_another_feature(kind)
    with pytest.warns(UserWarning, match=f"HFWMatrixCompletion found one entry only {message}") as record:
        HFWMatrixCompletion(random_state=0).fit(X, np.arange(len(X)))
    assert [(warning.category, warning.filename) for warning in record] == [(UserWarning, __file__)]
    repeated = np.concatenate([np.asarray(X, dtype=object)] * 2)  # which are the same entries twice
    with pytest.warns(UserWarning, match="found one entry only"):
        HFWMatrixCompletion(random_state=0).fit(repeated, np.arange(2 * len(X)))


def test_ids_that_are_not_doubted():
    """Few entries, a long tail of columns with one entry, and columns that two features name together."""
    HFWMatrixCompletion().fit(with_another_feature("time")[:199], np.arange(199))
    rng = np.random.default_rng(0)
    popular = np.column_stack([rng.integers(0, 300, 700), rng.zipf(1.1, 700)])
    _, counts = np.unique(popular[:, 1], return_counts=True)
    assert np.mean(counts == 1) > 0.9  # of the columns
    assert np.sum(counts == 1) > 0.6 * 700  # of the entries
    HFWMatrixCompletion().fit(popular, rng.normal(size=700))
    HFWMatrixCompletion().fit(np.column_stack([ENTRIES[:, 0], ENTRIES[:, 1] // 5, ENTRIES[:, 1] % 5]), VALUES)


def test_new_ids_are_doubted_where_that_is_odd():
    names = np.array([f"user {i}" for i in range(40)], dtype=object)[ENTRIES[:, 0]]
    X = np.column_stack([names, ENTRIES[:, 1].astype(object)])
    model = HFWMatrixCompletion(random_state=0).fit(X, VALUES)
    new_rows = np.column_stack([names + " the second", ENTRIES[:, 1].astype(object)])
    new_columns = X + np.array([["", 100]], dtype=object)
    for odd, message in (
        (X[:, ::-1], "knows the rows in X as columns, and the columns as rows"),
        (X[:1, ::-1], "knows the rows in X as columns, and the columns as rows"),
        (X.astype(str), "none of the columns in X: ids are of type str, in fit of type int"),
        (X[:1].astype(str), "none of the columns in X: ids are of type str, in fit of type int"),
        (new_rows, "knows none of the 40 rows in X: their ids were not seen"),
        (new_rows[ENTRIES[:, 0] < 10], "knows none of the 10 rows in X: their ids were not seen"),
        (new_columns, "knows none of the 25 columns in X: their ids were not seen"),
    ):
        with pytest.warns(UserWarning, match=f"HFWMatrixCompletion.predict .*{message}") as record:
            assert np.isfinite(model.predict(odd)).all()
        assert [(warning.category, warning.filename) for warning in record] == [(UserWarning, __file__)]
    few = new_rows[ENTRIES[:, 0] < 9]
    for usual in (few, new_rows[:1], new_columns[:1], np.vstack([X[:1], new_rows])):
        model.predict(usual)
    several = np.column_stack([ENTRIES[:, 0], ENTRIES[:, 1] // 5, ENTRIES[:, 1] % 5]).astype(object)
    model.fit(several, VALUES)
    several[:, 2] = several[:, 2].astype(str)
    with pytest.warns(UserWarning, match="none of the columns in X: ids are of type str, in fit of type int"):
        model.predict(several)


def test_many_ids_name_a_column_together():
    """More combinations than there are integers."""
    ids = np.column_stack([np.zeros(3000), *(np.arange(3000) for _ in range(6))])
    values = np.sin(np.arange(3000.0))
    with pytest.warns(UserWarning, match="one entry only in nearly every column"):
        model = HFWMatrixCompletion(random_state=0).fit(ids, values)
    assert model.column_ids_.shape == (3000, 6)
    assert np.abs(model.predict(ids) - model.mean_).min() > 0.0
    ids[:, 1:] = ids[::-1, 1:]  # another order, the same columns
    ids[0, 3] = 0  # each id is known, their combination is not
    predictions = model.predict(ids)
    np.testing.assert_allclose(predictions[1:], model.predict(ids[1:][::-1])[::-1])
    assert predictions[0] == pytest.approx(model.mean_ + model.row_biases_[0])


@pytest.mark.parametrize("tiny", [1e-30, 1e-300])
@pytest.mark.parametrize("exponent", [0.2, 1.0, 5.0])
def test_weights_of_a_wide_range(tiny, exponent):
    """A row of which next to nothing is known is free, but not so free that it spoils the others."""
    weights = np.where(ENTRIES[:, 0] == 0, tiny, 1.0)
    model = HFWMatrixCompletion(3.0, weight_exponent=exponent, random_state=0).fit(ENTRIES, VALUES, weights)
    errors = model.predict(ENTRIES) - VALUES
    assert np.abs(errors).max() < 10.0 * np.abs(VALUES).max()
    penalty = model.bias_penalty * (np.sum(model.row_biases_**2) + np.sum(model.column_biases_**2))
    expected = (weights @ errors**2 + penalty) / weights.sum() / 2
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    assert model.converged_


def test_factors_of_rank_zero():
    """Contradictory values of one entry: the descent has no factors to improve, and says nothing."""
    model = HFWMatrixCompletion(
        0.1,
        bias_penalty=None,
        momentum="none",
        step_size="directional",
        tol=0.0,
        max_iter=20,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit([[2, 1], [2, 0], [2, 0]], [1.0, 1.0, -1.0])
    assert model.rank_ == 0
    assert model.gap_ >= 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("corrective", [False, True])
def test_objective_of_a_model_whose_terms_have_cancelled(corrective):
    """Atoms immensely larger than the values: the model is what is left of them."""
    rng = np.random.default_rng(0)
    entries = np.column_stack([rng.integers(0, 3, 10), rng.integers(0, 5, 10)])
    for seed in range(10):
        values = np.random.default_rng(seed).normal(size=10)
        model = HFWMatrixCompletion(
            constraint=NuclearBall(1e15),
            biases="none",
            momentum="none",
            step_size="parameter_free",
            corrective=corrective,
            max_iter=30,
            tol=0.0,
        ).fit(entries, values)
        errors = model.predict(entries) - values
        rounding = 1e-14 * model.singular_values_.sum()  # of the sums that predictions are
        assert model.objective_ == pytest.approx(np.mean(errors**2) / 2, rel=1e-9, abs=rounding)


def test_repeated_entries_whose_means_the_biases_explain():
    """What is left of the means is rounding, and no unit for the radius."""
    values = np.array([0.88, -0.65, 0.9, -0.17, 0.26, -0.62, 0.25, -0.16, 0.85, 1.43])
    entries = np.column_stack([np.zeros(10), [0, 2, 2, 1, 3, 2, 1, 3, 2, 1]])
    for scale in (1.0, 1e-146):
        model = HFWMatrixCompletion(1e-3, bias_penalty=None, random_state=0).fit(entries, scale * values)
        errors = (model.predict(entries) / scale - values) ** 2
        assert model.objective_ / scale / scale == pytest.approx(np.mean(errors) / 2, rel=1e-6)


def test_a_warm_start_knows_nothing_of_rows_it_has_not_seen():
    model = HFWMatrixCompletion(2.0, warm_start=True, tol=1e-3, random_state=0).fit(ENTRIES, VALUES)
    elsewhere = ENTRIES + np.array([1000, 0])
    cold = clone(model).fit(elsewhere, VALUES)
    warm = model.fit(elsewhere, VALUES)
    assert warm.trace_["objective"][0] == cold.trace_["objective"][0]
    # And all of rows that it has seen.
    again = clone(model).fit(ENTRIES, VALUES).fit(ENTRIES, VALUES)
    assert again.trace_["objective"][0] < 0.5 * cold.trace_["objective"][0]


def test_a_warning_says_how_large_the_gap_is_relative_to_what_was_won():
    """In units of the values, and relative to what the matrix lowers the objective by."""
    model = HFWMatrixCompletion(2.0, biases="none", corrective=False, max_iter=1, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning) as record:
        model.fit(ENTRIES, 100.0 * VALUES)
    message = str(record[0].message)
    assert f"certified gap of {model.gap_:.3g}," in message
    won = model.trace_["objective"][0] - model.objective_
    assert f"which is {model.gap_ / won:.3g} of what the low-rank part wins" in message


@pytest.mark.parametrize("max_rank", [1, 2, 3, 25, 1000])
@pytest.mark.parametrize("params", [{}, {"constraint": "nuclear"}, {"implicit": "both"}], ids=str)
def test_the_rank_has_a_limit(max_rank, params):
    entries, values, _ = made_data(rank=4)
    model = HFWMatrixCompletion(1.0, **{"implicit": "none", "tol": 1e-4, "random_state": 0, **params})
    optimum = clone(model).fit(entries, values)
    assert optimum.rank_ > 3
    model.set_params(max_rank=max_rank)
    if max_rank > 3:
        model.fit(entries, values)
        assert model.converged_
    else:
        with pytest.warns(
            ConvergenceWarning, match=r"For a smaller one .*raise max_rank, or lower the radius"
        ):
            model.fit(entries, values)
        assert not model.converged_
    assert model.rank_ <= max_rank
    assert model.trace_["atoms"].max() <= max_rank
    assert model.lower_bound_ <= optimum.objective_ <= model.objective_ + optimum.gap_
    check_certificate(model, entries, values)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("many_entries", [10, 10_000], ids=["single precision", "double precision"])
def test_a_limited_rank_is_as_good_as_it_may_be(many_entries, monkeypatch):
    """More factors are never worse, and a second run from there gains next to nothing."""
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", many_entries)
    entries, values, _ = made_data((60, 50), rank=6, noise=0.5)
    objectives = []
    for max_rank in range(1, 7):
        model = HFWMatrixCompletion(
            1.0, max_rank=max_rank, implicit="none", tol=1e-6, warm_start=True, random_state=0
        ).fit(entries, values)
        objectives.append(model.objective_)
        null = model.trace_["objective"][0]
        model.fit(entries, values)
        assert objectives[-1] - model.objective_ < 1e-3 * (null - model.objective_)
    assert np.all(np.diff(objectives) < 0.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warm_start_from_a_larger_rank():
    """Where the weights are large the matrix is zero. Cut to rank one it is not, and leaves the ball."""
    entries = np.argwhere(np.ones((8, 8)))
    rows, columns = entries.T // 4
    heavy = (rows == 0) & (columns == 1)
    values, weights = np.where(heavy, 0.0, 1.0), np.where(heavy, 100.0, 1.0)
    model = HFWMatrixCompletion(
        0.02, biases="none", implicit="none", weight_exponent=1.0, tol=1e-6, warm_start=True, random_state=0
    ).fit(entries, values, weights)
    assert model.rank_ > 1
    optimum = model.objective_
    model.set_params(max_rank=1).fit(entries, values, weights)
    assert model.rank_ == 1
    weighted = []
    for factors, ids in ((model.row_factors_, entries[:, 0]), (model.column_factors_, entries[:, 1])):
        totals = np.bincount(ids, weights)
        weighted.append(totals / np.sqrt(np.mean(totals**2)) * factors[:, 0])
    norm = np.linalg.norm(weighted[0]) * np.linalg.norm(weighted[1])
    assert norm <= 0.02 * np.linalg.norm(values) * (1.0 + 1e-9)
    assert model.lower_bound_ <= optimum <= model.objective_


def test_what_a_limit_of_the_rank_needs():
    with pytest.raises(ValueError, match="max_rank needs corrective=True"):
        HFWMatrixCompletion(max_rank=3, corrective=False).fit(ENTRIES, VALUES)
    for bad in (0, 2.5, True, "3"):
        with pytest.raises(ValueError, match="max_rank must be an integer of at least 1; got max_rank="):
            HFWMatrixCompletion(max_rank=bad).fit(ENTRIES, VALUES)
    with pytest.raises(ValueError, match=r"max_rank needs a nuclear-norm ball; got constraint=L1Ball"):
        HFWMatrixCompletion(max_rank=3, constraint=L1Ball(1.0)).fit(ENTRIES, VALUES)
    model = HFWMatrixCompletion(max_rank=1, constraint=NuclearBall(1.0), tol=1e-4)
    with pytest.warns(ConvergenceWarning):
        assert model.fit(ENTRIES, VALUES).rank_ == 1


@pytest.mark.parametrize("radius", [0.03, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("corrective", [False, True])
def test_a_small_radius_is_no_null_model(radius, corrective):
    """The gap is small relative to what was won, however little that is."""
    model = HFWMatrixCompletion(
        radius, biases="mean", implicit="none", corrective=corrective, random_state=0
    ).fit(ENTRIES, VALUES)
    optimum = clone(model).set_params(corrective=True, tol=1e-7).fit(ENTRIES, VALUES)
    null = 0.5 * VALUES.var()
    assert model.rank_ > 0
    assert model.gap_ <= 0.1 * max(null - model.objective_, 0.01 * null)
    assert null - model.objective_ >= 0.9 * (null - optimum.objective_)


@pytest.mark.parametrize(
    "values", [np.zeros(len(VALUES)), np.full(len(VALUES), 7.1)], ids=["zero", "constant"]
)
@pytest.mark.parametrize("implicit", ["auto", "both"])
def test_what_has_no_signal_ends_at_once(values, implicit):
    model = HFWMatrixCompletion(implicit=implicit, random_state=0).fit(ENTRIES, values)
    assert model.n_iter_ == 0
    assert model.rank_ == 0
    assert model.gap_ == 0.0
    np.testing.assert_allclose(model.predict(EVERYWHERE), values[0], rtol=1e-12)


@pytest.mark.parametrize("radius", [1e-3, 0.1, "scale"])
def test_noise_ends(radius):
    noise = np.random.default_rng(0).normal(size=len(VALUES))
    model = HFWMatrixCompletion(radius, random_state=0).fit(ENTRIES, noise)
    assert model.converged_
    assert model.n_iter_ < 30
    assert model.implicit_ == "none"
    check_certificate(model, ENTRIES, noise)


@pytest.mark.parametrize("biases", ["mean", "columns", "both"])
def test_weights_that_are_nothing_beside_the_others(biases):
    """Divided by the largest, they are zero: so are their entries left out."""
    rng = np.random.default_rng(0)
    X, y = np.argwhere(np.ones((5, 4))), rng.normal(size=20)
    weights = np.where(X[:, 1] == 3, 1e-300, 1e200)
    model = HFWMatrixCompletion(2.0, biases=biases, implicit="none", random_state=0).fit(X, y, weights)
    known = X[:, 1] != 3
    same = HFWMatrixCompletion(2.0, biases=biases, implicit="none", random_state=0)
    same.fit(X[known], y[known], weights[known])
    np.testing.assert_array_equal(model.predict(X[known]), same.predict(X[known]))
