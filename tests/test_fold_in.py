"""Rows and columns that are added to a fitted model."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skfw import HFWMatrixCompletion, HFWMatrixCompletionCV
from skfw.engine import Constraint, NuclearBall

RNG = np.random.default_rng(0)
SHAPE = 40, 30
ROW_FEATURES, COLUMN_FEATURES = RNG.normal(size=(40, 2)), RNG.normal(size=(30, 3))
TRUTH = RNG.normal(size=(40, 2)) @ RNG.normal(size=(2, 30)) + ROW_FEATURES[:, :1] + RNG.normal(size=30) + 2.0
ENTRIES = np.argwhere(RNG.uniform(size=SHAPE) < 0.6)
VALUES = TRUTH[tuple(ENTRIES.T)] + 0.3 * RNG.normal(size=len(ENTRIES))
EVERYWHERE = np.argwhere(np.ones(SHAPE))
FEATURES = {
    "row_features": (np.arange(40), ROW_FEATURES),
    "column_features": (np.arange(30), sparse.csr_matrix(np.abs(COLUMN_FEATURES))),
}
AXES = pytest.mark.parametrize("axis", ["rows", "columns"])


def fitted(entries=ENTRIES, values=VALUES, weights=None, features=None, **params):
    model = HFWMatrixCompletion(**{"radius": 0.8, "implicit": "none", "random_state": 0, **params})
    return model.fit(entries, values, weights, **(features or {}))


def of(axis, numbers):
    """Which entries are those of some rows, or columns."""
    return np.isin(ENTRIES[:, ("rows", "columns").index(axis)], numbers)


def fold_in(model, axis, numbers, **options):
    some = of(axis, numbers)
    return model.fold_in(ENTRIES[some], VALUES[some], axis=axis, **options)


@pytest.fixture
def full_penalty(monkeypatch):
    """With the whole penalty of `fit`, a fitted row is its own solution."""
    monkeypatch.setattr("skfw._fold_in._EASED", 1.0)


KINDS = [
    *(
        {"biases": biases, "bias_penalty": p}
        for biases in ("none", "mean", "rows", "columns", "both")
        for p in (None, 3.0)
    ),
    {"constraint": "nuclear"},
    {"constraint": NuclearBall(0.8)},
    {"constraint": NuclearBall(30.0), "normalize": False},
    {"radius": 30.0, "normalize": False},
    {"weight_exponent": 0.5},
    *({"implicit": implicit} for implicit in ("rows", "columns", "both")),
    {"features": FEATURES},
    {"features": FEATURES, "implicit": "both", "constraint": "nuclear"},
]


@AXES
@pytest.mark.parametrize("params", KINDS, ids=lambda params: str(params)[:60])
def test_a_fitted_row_is_its_own_solution(params, axis, full_penalty):
    """Folded in with all its entries, it stays where it is, but for the accuracy of the fit."""
    model = fitted(tol=1e-8, **params)
    before, size = model.predict(EVERYWHERE), np.abs(model.row_factors_ @ model.column_factors_.T).max()
    fold_in(model, axis, [3, 7, 20])
    np.testing.assert_allclose(model.predict(EVERYWHERE), before, atol=2e-3 * size)
    assert (len(model.row_ids_), len(model.column_ids_)) == SHAPE


@AXES
def test_a_weighted_row_is_its_own_solution(axis, full_penalty):
    weights = np.random.default_rng(0).uniform(0.0, 5.0, len(VALUES)) * (RNG.uniform(size=len(VALUES)) < 0.8)
    model = fitted(weights=weights, tol=1e-8)
    before = model.predict(EVERYWHERE)
    some = of(axis, [3, 7])
    model.fold_in(ENTRIES[some], VALUES[some], weights[some], axis=axis)
    np.testing.assert_allclose(model.predict(EVERYWHERE), before, atol=1e-2)


@AXES
@pytest.mark.parametrize(
    "params", [{}, {"implicit": "both"}, {"features": FEATURES}], ids=lambda params: str(params)[:20]
)
def test_new_rows_are_predicted_about_as_by_a_fit(params, axis):
    numbers = np.arange(5)
    old = ~of(axis, numbers)
    everywhere = EVERYWHERE[np.isin(EVERYWHERE[:, ("rows", "columns").index(axis)], numbers)]
    truth = TRUTH[tuple(everywhere.T)]
    refitted = fitted(**params)
    model = fold_in(fitted(ENTRIES[old], VALUES[old], **params), axis, numbers)
    by_fit, by_fold_in = (
        np.sqrt(np.mean((each.predict(everywhere) - truth) ** 2)) for each in (refitted, model)
    )
    assert by_fold_in < 1.2 * by_fit
    assert by_fit < 0.6 * truth.std()
    ids = model.row_ids_ if axis == "rows" else model.column_ids_
    np.testing.assert_array_equal(ids, [*range(5, len(ids)), *range(5)])


@AXES
def test_what_is_old_keeps_its_bits(axis):
    model = fitted(features=FEATURES, implicit="both")
    number = ("rows", "columns").index(axis)
    others = EVERYWHERE[~np.isin(EVERYWHERE[:, number], [3, 7])]
    before, certificate = model.predict(others), (model.objective_, model.lower_bound_, model.gap_)
    fold_in(model, axis, [3, 7])
    new = ENTRIES[of(axis, [5])]
    new[:, number] = 1000
    model.fold_in(new, VALUES[of(axis, [5])], axis=axis)
    np.testing.assert_array_equal(model.predict(others), before)
    assert (model.objective_, model.lower_bound_, model.gap_) == certificate


@AXES
@pytest.mark.parametrize("implicit", ["none", "rows", "columns", "both"])
def test_rows_one_by_one_are_rows_together(axis, implicit):
    """Also where some ids are known by their features alone, and after both sides have grown."""
    warm = (ENTRIES < [35, 26]).all(axis=1)
    together, alone = (
        fitted(ENTRIES[warm], VALUES[warm], features=FEATURES, implicit=implicit) for _ in range(2)
    )
    number, limit = ("rows", "columns").index(axis), (35, 26)
    new = (ENTRIES[:, number] >= limit[number]) & (ENTRIES[:, 1 - number] < limit[1 - number])
    together.fold_in(ENTRIES[new], VALUES[new], axis=axis)
    for each in np.unique(ENTRIES[new, number]):
        one = new & (ENTRIES[:, number] == each)
        alone.fold_in(ENTRIES[one], VALUES[one], axis=axis)
    np.testing.assert_allclose(together.predict(EVERYWHERE), alone.predict(EVERYWHERE), atol=1e-9)
    # Then the other side, with entries in what has been added.
    other = ("columns", "rows")[number]
    rest = ENTRIES[:, 1 - number] >= limit[1 - number]
    together.fold_in(ENTRIES[rest], VALUES[rest], axis=other)
    residual = np.sqrt(np.mean((together.predict(ENTRIES) - VALUES) ** 2))
    assert residual < 0.6 * VALUES.std()


def test_what_is_not_given_is_forgotten():
    model = fitted()
    mine = of("rows", [4])
    some = np.flatnonzero(mine)[:3]
    known = set(model.recommend([4], n=30)[0].compressed())
    assert known.isdisjoint(ENTRIES[mine, 1])
    model.fold_in(ENTRIES[some], VALUES[some])
    left = model.recommend([4], n=30)[0].compressed()
    assert set(left) == set(range(30)) - set(ENTRIES[some, 1])
    # A column that is replaced forgets the rows it had.
    some = np.flatnonzero(of("columns", [9]))[:2]
    model.fold_in(ENTRIES[some], VALUES[some], axis="columns")
    for row in range(40):
        left = model.recommend([row], n=30)[0]
        found = 9 in (left.compressed() if np.ma.isMaskedArray(left) else left)
        assert found == (row not in ENTRIES[some, 0])


def test_new_names(full_penalty):
    names = np.array([f"u{i:02d}" for i in range(40)], dtype=object)
    entries = pd.DataFrame(
        {"user": names[ENTRIES[:, 0]], "kind": ENTRIES[:, 1] // 5, "number": ENTRIES[:, 1] % 5}
    )
    model = fitted(entries, tol=1e-6)
    one = of("rows", [0])
    new = entries[one].assign(user="somebody with a long name")
    model.fold_in(new, VALUES[one])
    assert model.row_ids_[-1] == "somebody with a long name"
    assert model.recommend(["somebody with a long name"], n=2)[0].shape == (1, 2, 2)
    assert model.similar_rows(["somebody with a long name"], n=1)[0][0, 0] == "u00"
    column = entries[of("columns", [0])].assign(kind=77)
    model.fold_in(column, VALUES[of("columns", [0])], axis="columns")
    assert model.column_ids_.tolist()[-1] == [77, 0]
    assert model.similar_columns([[77, 0]], n=1)[0].tolist() == [[[0, 0]]]
    with pytest.raises(ValueError, match=r"Column \(78, 0\) was not seen in fit"):
        model.fold_in(column.assign(kind=78), VALUES[of("columns", [0])])


def test_strings_are_not_cut():
    names = np.array([f"u{i:02d}" for i in range(40)])
    model = fitted(np.column_stack([names[ENTRIES[:, 0]], ENTRIES[:, 1].astype("<U2")]))
    long = np.array([["a very long name", "3"], ["a very long name", "4"]])
    model.fold_in(long, [1.0, 2.0])
    assert model.row_ids_[-1] == "a very long name"
    mixed = np.array([[5, "3"], [5, "4"]], dtype=object)
    model.fold_in(mixed, [1.0, 2.0])
    assert model.row_ids_[-1] == 5
    assert model.recommend([5, "a very long name"], n=1)[0].shape == (2, 1)


def test_features_of_new_rows():
    """A new row with two entries is drawn to what its features say."""
    old = ~of("rows", [38, 39])
    features = {"row_features": (np.arange(38), ROW_FEATURES[:38])}
    model = fitted(ENTRIES[old], VALUES[old], features=features)
    fitted_features = fitted(ENTRIES[old], VALUES[old], features={"row_features": FEATURES["row_features"]})
    two = np.flatnonzero(of("rows", [38]))[:2]
    without, copy = pickle.loads(pickle.dumps([model, model]))
    model.fold_in(ENTRIES[two], VALUES[two], features=(np.arange(37, 40), ROW_FEATURES[37:]))
    without.fold_in(ENTRIES[two], VALUES[two])
    np.testing.assert_array_equal(model.row_ids_, np.arange(40))
    row = np.column_stack([np.full(30, 38), np.arange(30)])
    assert np.abs(model.predict(row) - without.predict(row)).max() > 0.01
    # Row 39 is known by its features alone, about as if they had been given to `fit`.
    row = np.column_stack([np.full(30, 39), np.arange(30)])
    np.testing.assert_allclose(model.predict(row), fitted_features.predict(row), atol=0.2)
    # Row 37 keeps the features it had.
    copy.fold_in(ENTRIES[two], VALUES[two], features=([37, 38], [[1e9, 1e9], ROW_FEATURES[38]]))
    row = np.column_stack([np.full(30, 38), np.arange(30)])
    np.testing.assert_array_equal(copy.predict(row), model.predict(row))
    given = copy._sides[0].side.given
    np.testing.assert_array_equal(given.of(np.array([[37]])).toarray(), given.matrix[37].toarray())


@pytest.mark.parametrize(
    "features, message",
    [
        (([50, 50], np.ones((2, 2))), "features must have one row for each id; 50 repeats"),
        (([50], np.ones((1, 3))), "features must have 2 features, as in fit; got 3"),
        (([50], [[np.nan, 1.0]]), "features must have finite numbers"),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}, index=[50]), "features must have numbers; its column 'b'"),
    ],
)
def test_bad_features(features, message):
    model = fitted(features=FEATURES)
    unchanged = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fold_in([[50, 1]], [1.0], features=features)
    assert vars(model) == unchanged
    with pytest.raises(ValueError, match="features need a model that was fitted with column_features"):
        fitted().fold_in([[0, 50]], [1.0], axis="columns", features=([50], [[1.0]]))


def test_weights():
    """A weight of two is a repetition, one of zero an absence; their unit is that of `fit`."""
    model = fitted(weights=np.full(len(VALUES), 4.0))
    some, rng = of("rows", [2, 8]), np.random.default_rng(0)
    X, y = ENTRIES[some], VALUES[some] + rng.normal(size=some.sum())
    counts = rng.integers(0, 3, len(y))
    copies = pickle.loads(pickle.dumps([model] * 4))
    data = (
        (X, y, 4 * counts),
        (np.repeat(X, counts, axis=0), np.repeat(y, counts), np.full(counts.sum(), 4.0)),
        (X[counts > 0], y[counts > 0], 4 * counts[counts > 0]),
        (X, y, counts),
    )
    first, *others, lighter = (
        each.fold_in(*part).predict(EVERYWHERE) for each, part in zip(copies, data, strict=True)
    )
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9)
    assert np.abs(lighter - first).max() > 1e-3
    assert model.recommend([2], n=30, exclude_known=True)[0].count() < 30
    with pytest.raises(ValueError, match="weights that are all zero"):
        model.fold_in(X, y, np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"sample_weight must have shape"):
        model.fold_in(X, y, np.ones(3))


@AXES
@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1e9, 1e150])
@pytest.mark.parametrize(
    "params", [{}, {"implicit": "both"}, {"features": FEATURES}, {"bias_penalty": None}], ids=str
)
def test_values_of_any_size(scale, axis, params):
    model = fold_in(fitted(**params), axis, [3, 7])
    scaled = fitted(values=scale * VALUES, **params)
    some = of(axis, [3, 7])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled.fold_in(ENTRIES[some], scale * VALUES[some], axis=axis)
    np.testing.assert_allclose(scaled.predict(EVERYWHERE) / scale, model.predict(EVERYWHERE), atol=1e-6)


def test_repeated_entries_have_their_mean():
    one = of("rows", [6])
    first, second = (fitted() for _ in range(2))
    first.fold_in(np.vstack([ENTRIES[one]] * 2), np.append(VALUES[one] - 1.0, VALUES[one] + 1.0))
    second.fold_in(ENTRIES[one], VALUES[one], np.full(one.sum(), 2.0))
    np.testing.assert_allclose(first.predict(EVERYWHERE), second.predict(EVERYWHERE), rtol=1e-9)


def test_a_model_without_a_low_rank_part():
    model = fitted(values=np.full(len(VALUES), 2.0))
    assert model.rank_ == 0
    model.fold_in([[100, 1], [100, 2]], [3.0, 3.0])
    assert 2.0 < model.predict([[100, 5]])[0] < 3.0


def test_a_row_with_a_single_entry_and_a_ball_that_holds_nothing():
    """The multiplier is zero: equations that only their ridge makes solvable."""
    model = fitted(ENTRIES[:60], VALUES[:60], radius=1e6, max_iter=50, tol=1e-2)
    row = model.predict(np.column_stack([np.full(30, 500), np.arange(30)]))
    model.fold_in([[500, 3]], [VALUES.max()])
    predictions = model.predict(np.column_stack([np.full(30, 500), np.arange(30)]))
    assert np.isfinite(predictions).all()
    assert abs(predictions[3] - VALUES.max()) < abs(row[3] - VALUES.max())


@pytest.mark.parametrize(
    "X, y, options, message",
    [
        ([[0, 99]], [1.0], {}, "Column 99 was not seen in fit"),
        ([[99, 0]], [1.0], {"axis": "columns"}, "Row 99 was not seen in fit"),
        ([["0", "1"]], [1.0], {}, "Column '1' was not seen in fit: it is of type str, in fit of type int"),
        (
            [[0, 1]],
            [1.0],
            {"axis": "row"},
            "axis must be one of 'rows', 'columns'; got axis='row'; did you mean",
        ),
        ([[0, 1]], [1.0], {"axis": 0}, "axis must be one of"),
        ([[0, 1]], [np.nan], {}, "NaN"),
        ([[0, 1]], ["a"], {}, "y must have numbers"),
        ([[0, 1]], [1.0, 2.0], {}, "inconsistent numbers of samples"),
        ([[0, 1], [0, 2]], [[1.0, 2.0], [1.0, 2.0]], {}, "y should be a 1d array"),
        ([[0, 1, 2]], [1.0], {}, "X has 3 features, but HFWMatrixCompletion is expecting 2"),
        ([[None, 1]], [1.0], {}, "neither missing"),
        (np.zeros((0, 2)), [], {}, "0 sample"),
    ],
)
def test_an_error_leaves_the_model_as_it_was(X, y, options, message):
    model = fitted()
    unchanged = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fold_in(X, y, **options)
    assert vars(model).keys() == unchanged.keys()
    assert all(vars(model)[name] is value for name, value in unchanged.items())


def test_not_fitted():
    for estimator in (HFWMatrixCompletion(), HFWMatrixCompletionCV()):
        with pytest.raises(NotFittedError):
            estimator.fold_in([[0, 1]], [1.0])


class OwnBall(Constraint):
    """A nuclear-norm ball that does not say so."""

    contains_zero = low_rank = True

    def lmo(self, direction, hint=None):
        return NuclearBall(0.8).lmo(direction, hint)

    def diameter(self, shape):
        return 1.6


def test_a_set_without_a_multiplier_cannot_hold_a_row():
    with pytest.raises(
        ValueError, match=r"fold_in needs the multiplier of a nuclear-norm ball; constraint=.*OwnBall"
    ):
        fitted(constraint=OwnBall()).fold_in([[0, 1]], [1.0])


def test_pickle_refit_and_warm_start_after_fold_in():
    for implicit in ("none", "both"):
        model = fitted(implicit=implicit, features=FEATURES, warm_start=True, tol=1e-4)
        objective = model.objective_
        fold_in(model, "rows", [3])
        fold_in(model, "columns", [5])
        new = ENTRIES[of("rows", [5])]
        new[:, 0] = 1000
        model.fold_in(new, VALUES[of("rows", [5])])
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copy.predict(EVERYWHERE), model.predict(EVERYWHERE))
        np.testing.assert_array_equal(copy.recommend(n=3)[0], model.recommend(n=3)[0])
        # A fit goes on from what the last one has found, and knows nothing of what came after.
        model.fit(ENTRIES, VALUES, **FEATURES)
        assert model.trace_["objective"][0] == pytest.approx(objective, rel=1e-8)
        np.testing.assert_array_equal(model.row_ids_, np.arange(40))


def test_many_times():
    """The ids that were added are found as fast as the others, and keep their order."""
    model = fitted()
    one = of("rows", [0])
    new = ENTRIES[one]
    for number in range(1000, 960, -1):
        new[:, 0] = number
        model.fold_in(new, VALUES[one])
    np.testing.assert_array_equal(model.row_ids_, [*range(40), *range(1000, 960, -1)])
    np.testing.assert_array_equal(model._row_encoder.transform(model.row_ids_[:, np.newaxis]), np.arange(80))
    predictions = model.predict([[number, 7] for number in range(961, 1001)])
    np.testing.assert_array_equal(predictions, predictions[0])


def test_after_cross_validation():
    model = HFWMatrixCompletionCV([0.5, 0.8], implicit="none", cv=2, tol=1e-4, random_state=0)
    model.fit(ENTRIES, VALUES)
    plain = fitted(radius=model.radius_, tol=1e-4)
    for each in (model, plain):
        fold_in(each, "rows", [3])
    np.testing.assert_allclose(model.predict(EVERYWHERE), plain.predict(EVERYWHERE), atol=0.05)
