"""Features of rows and columns: those given to `fit`, and the implicit ones that the pattern makes."""

import pickle

import numpy as np
import pandas as pd
import pytest
from problems import dense_featured_completion
from scipy import sparse
from sklearn.base import clone

from skfw import HFWMatrixCompletion

N_ROWS, N_COLUMNS = 60, 40
RNG = np.random.default_rng(0)
ROW_FEATURES = RNG.normal(size=(N_ROWS, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 1.0]
COLUMN_FEATURES = RNG.normal(size=(N_COLUMNS, 2))
# What is not in the biases is a product of features.
TRUTH = (
    3.0 + (ROW_FEATURES - [0.0, 50.0, 1.0]) / [1.0, 10.0, 0.1] @ RNG.normal(size=(3, 2)) @ COLUMN_FEATURES.T
)
ENTRIES = np.argwhere(RNG.uniform(size=TRUTH.shape) < 0.4)
VALUES = TRUTH[tuple(ENTRIES.T)] + 0.1 * RNG.normal(size=len(ENTRIES))
COLD_ROWS, COLD_COLUMNS = np.arange(50, N_ROWS), np.arange(34, N_COLUMNS)
WARM = (ENTRIES[:, 0] < 50) & (ENTRIES[:, 1] < 34)
EVERYWHERE = np.argwhere(np.ones_like(TRUTH))
ROWS = {"row_features": (np.arange(N_ROWS), ROW_FEATURES)}
COLUMNS = {"column_features": (np.arange(N_COLUMNS), COLUMN_FEATURES)}


def rmse(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


def fitted(entries=ENTRIES, values=VALUES, weights=None, features=None, **params):
    model = HFWMatrixCompletion(
        **{"radius": 0.6, "implicit": "none", "tol": 1e-4, "random_state": 0, **params}
    )
    return model.fit(entries, values, weights, **(features or {}))


def assert_agree(model, other):
    """Two models of the same problem: neither is better than the other by more than that one's gap."""
    assert model.lower_bound_ <= other.objective_
    assert other.lower_bound_ <= model.objective_
    np.testing.assert_allclose(model.predict(EVERYWHERE), other.predict(EVERYWHERE), atol=0.05)


def features_by_hand(features, pattern, constant, implicit):
    """The identity, standardised features, a constant and the pattern, as the rows of the model have them."""
    blocks = [np.eye(len(pattern))]
    if features is not None:
        deviations = features.std(axis=0) * np.sqrt(features.shape[1])
        blocks.append(np.sqrt(0.5) * (features - features.mean(axis=0)) / deviations)
    if constant:
        blocks.append(np.full((len(pattern), 1), np.sqrt(0.5)))
    if implicit:
        blocks.append(np.sqrt(0.5 / pattern.sum(axis=1, keepdims=True)) * pattern)
    return np.hstack(blocks)


def norm_weights(totals, length, exponent):
    """Weights of ids in the norm, then those of features."""
    powers = totals**exponent
    return np.append(powers / np.sqrt(np.mean(powers**2)), np.ones(length - len(totals)))


@pytest.mark.parametrize("implicit", ["none", "rows", "columns", "both"])
@pytest.mark.parametrize("given", ["none", "rows", "both"])
@pytest.mark.parametrize("constraint, biases", [("nuclear", "none"), ("weighted_nuclear", "both")])
def test_certificate_against_a_dense_reference(implicit, given, constraint, biases):
    rng = np.random.default_rng(1)
    pattern = rng.uniform(size=(12, 9)) < 0.6
    entries = np.argwhere(pattern)
    row_features = rng.normal(size=(12, 3)) if given != "none" else None
    column_features = rng.normal(size=(9, 2)) if given == "both" else None
    values = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 9)) + 0.2 * rng.normal(size=(12, 9)) + 1.0
    values, weights = values[pattern], rng.uniform(0.5, 2.0, len(entries))
    radius = 4.0
    model = HFWMatrixCompletion(
        radius,
        constraint=constraint,
        biases=biases,
        implicit=implicit,
        normalize=False,
        tol=1e-6,
        random_state=0,
    ).fit(
        entries,
        values,
        weights,
        row_features=None if row_features is None else (np.arange(12), row_features),
        column_features=None if column_features is None else (np.arange(9), column_features),
    )
    assert model.implicit_ == implicit
    assert model.radius_ == radius
    A = features_by_hand(row_features, pattern, given == "both", implicit in ("rows", "both"))
    C = features_by_hand(column_features, pattern.T, given != "none", implicit in ("columns", "both"))
    if constraint == "weighted_nuclear":
        A = A / norm_weights(np.bincount(entries[:, 0], weights), A.shape[1], 0.2)
        C = C / norm_weights(np.bincount(entries[:, 1], weights), C.shape[1], 0.2)
    shares = weights / weights.sum()
    targets = values - shares @ values if biases == "both" else values
    optimum = dense_featured_completion(
        A, C, *entries.T, targets, shares, radius, 3.0 / weights.sum() if biases == "both" else None
    )
    null = 0.5 * shares @ values**2
    assert model.converged_
    assert model.lower_bound_ <= model.objective_
    assert model.lower_bound_ <= optimum + 1e-8 * null
    assert optimum - 1e-8 * null <= model.objective_ <= optimum + model.gap_ + 1e-8 * null


@pytest.mark.parametrize("implicit", ["none", "rows", "columns", "both"])
@pytest.mark.parametrize(
    "features", [{}, ROWS, COLUMNS, {**ROWS, **COLUMNS}], ids=["none", "rows", "columns", "both"]
)
def test_attributes_make_up_the_prediction_and_the_objective(implicit, features):
    model = fitted(ENTRIES[WARM], VALUES[WARM], features=features, implicit=implicit, tol=1e-1)
    matrix = model.mean_ + model.row_biases_[:, np.newaxis] + model.column_biases_
    matrix = matrix + model.row_factors_ @ model.column_factors_.T
    predictions = model.predict([(row, column) for row in model.row_ids_ for column in model.column_ids_])
    np.testing.assert_allclose(predictions, matrix.ravel(), atol=1e-9)
    squares = np.sum(model.row_biases_**2) + np.sum(model.column_biases_**2)
    mean_square = rmse(model.predict(ENTRIES[WARM]), VALUES[WARM]) ** 2
    assert model.objective_ == pytest.approx(0.5 * mean_square + 1.5 * squares / WARM.sum(), rel=1e-9)
    # Without those that are known by their features alone, the columns of the factors are orthogonal.
    for factors, n_ids in ((model.row_factors_, 50), (model.column_factors_, 34)):
        gram = factors[:n_ids].T @ factors[:n_ids]
        np.testing.assert_allclose(gram, np.diag(model.singular_values_), atol=1e-6 * gram.max())


def test_features_as_a_frame_an_array_or_a_sparse_matrix():
    expected = fitted(features=ROWS).predict(EVERYWHERE)
    shuffled = np.random.default_rng(0).permutation(N_ROWS)
    frame = pd.DataFrame(ROW_FEATURES, columns=["age", "height", "income"]).loc[shuffled]
    for given in (
        frame,
        frame.set_index(frame.index.astype(float)),
        (list(shuffled), ROW_FEATURES[shuffled].tolist()),
        (frame.index, frame),
    ):
        np.testing.assert_allclose(fitted(features={"row_features": given}).predict(EVERYWHERE), expected)
    names = np.array([f"user {i:02d}" for i in range(N_ROWS)], dtype=object)
    entries = np.column_stack([names[ENTRIES[:, 0]], ENTRIES[:, 1].astype(object)])
    model = fitted(entries, features={"row_features": frame.set_index(names[shuffled])})
    everywhere = np.column_stack([names[EVERYWHERE[:, 0]], EVERYWHERE[:, 1].astype(object)])
    np.testing.assert_allclose(model.predict(everywhere), expected, rtol=1e-6)
    # What is sparse is not centred: a matrix with means of zero is the same in both forms.
    centred = ROW_FEATURES - ROW_FEATURES.mean(axis=0)
    for kind in (sparse.csr_matrix, sparse.coo_matrix, sparse.csc_matrix):
        given = {"row_features": (np.arange(N_ROWS), kind(centred))}
        assert_agree(fitted(features=given), fitted(features=ROWS))
    flags = centred > 0.0
    as_flags, as_numbers = (
        fitted(features={"row_features": pd.DataFrame(part)}) for part in (flags, flags.astype(np.int8))
    )
    np.testing.assert_array_equal(as_flags.predict(EVERYWHERE), as_numbers.predict(EVERYWHERE))


def test_features_of_columns_that_several_ids_name():
    expected = fitted(features=COLUMNS).predict(EVERYWHERE)
    several = np.column_stack([ENTRIES[:, 0], ENTRIES[:, 1] // 5, ENTRIES[:, 1] % 5])
    everywhere = np.column_stack([EVERYWHERE[:, 0], EVERYWHERE[:, 1] // 5, EVERYWHERE[:, 1] % 5])
    columns = np.arange(N_COLUMNS)
    index = pd.MultiIndex.from_arrays([columns // 5, columns % 5])
    for given in (
        pd.DataFrame(COLUMN_FEATURES, index=index),
        (np.column_stack([columns // 5, columns % 5]), COLUMN_FEATURES),
    ):
        model = fitted(several, features={"column_features": given})
        np.testing.assert_allclose(model.predict(everywhere), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"of 2 column\(s\) as in X; got ids of shape \(40, 1\) for 40 rows"):
        fitted(several, features=COLUMNS)


@pytest.mark.parametrize("scale", [1e3, 1e-150, 1e150, -1.0])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_scale_of_a_feature_does_not_matter(scale, form):
    plain = ROW_FEATURES - ROW_FEATURES.mean(axis=0)
    scaled = plain * [1.0, scale, 1.0]
    first, second = (
        fitted(features={"row_features": (np.arange(N_ROWS), form(part))}) for part in (plain, scaled)
    )
    assert_agree(first, second)


def test_the_mean_of_a_dense_feature_does_not_matter():
    shifted = {"row_features": (np.arange(N_ROWS), ROW_FEATURES + np.array([1e6, -5.0, 0.0]))}
    assert_agree(fitted(features=ROWS), fitted(features=shifted))


def test_features_without_any_information_are_none():
    """Zeros and constants are no features, whatever the constant, and leave the others as they are."""
    ids = np.arange(N_ROWS)
    plain = fitted(features=ROWS)
    useless = np.column_stack([np.zeros(N_ROWS), np.full(N_ROWS, 0.1), np.full(N_ROWS, 1e200)])
    padded = fitted(features={"row_features": (ids, np.hstack([useless, ROW_FEATURES]))})
    assert_agree(padded, plain)
    for nothing in (useless, sparse.csr_matrix((N_ROWS, 2))):
        model = fitted(features={"row_features": (ids, nothing)})
        assert model.converged_
        assert np.isfinite(model.predict(EVERYWHERE)).all()
        cold = fitted(ENTRIES[WARM], VALUES[WARM], features={"row_features": (ids, nothing)})
        assert not cold.row_factors_[50:].any()


def test_features_of_rank_one():
    """Repeated columns are one feature, as often as it is repeated."""
    repeated = {"row_features": (np.arange(N_ROWS), np.repeat(ROW_FEATURES[:, :1], 4, axis=1))}
    once = {"row_features": (np.arange(N_ROWS), ROW_FEATURES[:, :1])}
    assert_agree(fitted(features=repeated), fitted(features=once))


@pytest.mark.parametrize("implicit", ["none", "rows", "columns", "both"])
def test_what_has_features_alone_is_predicted_from_them(implicit):
    """In rows, in columns, and where both meet."""
    options = {"implicit": implicit, "radius": 1.5, "tol": 1e-2}
    model = fitted(ENTRIES[WARM], VALUES[WARM], features={**ROWS, **COLUMNS}, **options)
    plain = fitted(ENTRIES[WARM], VALUES[WARM], **options)
    np.testing.assert_array_equal(model.row_ids_, np.arange(N_ROWS))
    np.testing.assert_array_equal(model.column_ids_, np.arange(N_COLUMNS))
    assert not model.row_biases_[50:].any()
    cold = {
        "rows": (EVERYWHERE[:, 0] >= 50) & (EVERYWHERE[:, 1] < 34),
        "columns": (EVERYWHERE[:, 0] < 50) & (EVERYWHERE[:, 1] >= 34),
        "both": (EVERYWHERE[:, 0] >= 50) & (EVERYWHERE[:, 1] >= 34),
    }
    for part in cold.values():
        entries = EVERYWHERE[part]
        truth = TRUTH[tuple(entries.T)]
        with pytest.warns(UserWarning, match="knows none of"):
            by_biases = rmse(plain.predict(np.vstack([entries, entries + 100])), np.tile(truth, 2))
        assert rmse(model.predict(entries), truth) < 0.6 * by_biases


def test_what_has_features_alone_is_recommended_and_similar():
    model = fitted(ENTRIES[WARM], VALUES[WARM], features={**ROWS, **COLUMNS})
    ids, predictions = model.recommend(COLD_ROWS, n=3)
    best = np.argsort(-TRUTH[COLD_ROWS], axis=1)[:, :3]
    assert np.mean([len(set(found) & set(expected)) for found, expected in zip(ids, best, strict=True)]) > 2
    rows = np.repeat(COLD_ROWS, 3)
    np.testing.assert_allclose(predictions.ravel(), model.predict(np.column_stack([rows, ids.ravel()])))
    similar, cosines = model.similar_rows([50], n=1)
    centred = TRUTH - 3.0
    cosine = centred @ centred[50] / np.linalg.norm(centred, axis=1) / np.linalg.norm(centred[50])
    assert cosine[similar[0, 0]] > 0.9
    assert cosines[0, 0] > 0.9
    assert model.similar_columns([36], n=2)[0].shape == (1, 2)


def test_ids_without_features_have_their_means():
    """A row of which only features are known that are the means is one of which nothing is known."""
    ids = np.append(np.arange(N_ROWS), 1000)
    features = {"row_features": (ids, np.vstack([ROW_FEATURES, ROW_FEATURES.mean(axis=0)])), **COLUMNS}
    model = fitted(features=features)
    average, unknown = (np.column_stack([np.full(40, row), np.arange(40)]) for row in (1000, 2000))
    np.testing.assert_allclose(model.predict(average), model.predict(unknown), atol=1e-12)
    some = np.arange(0, N_ROWS, 2)
    partly = fitted(features={"row_features": (some, ROW_FEATURES[some])})
    np.testing.assert_array_equal(partly.row_ids_, np.arange(N_ROWS))
    assert partly.converged_


def test_new_ids_have_what_the_features_of_the_others_do_on_average():
    """Features explain the means of the columns, which a new row has as all others do."""
    effects = COLUMN_FEATURES @ [1.0, 2.0]
    values = effects[ENTRIES[:, 1]] + 0.1 * np.random.default_rng(0).normal(size=len(ENTRIES))
    warm = ENTRIES[:, 1] < 34
    model = fitted(ENTRIES[warm], values[warm], features=COLUMNS)
    new = np.column_stack([np.full(N_COLUMNS, 1000), np.arange(N_COLUMNS)])
    assert rmse(model.predict(new), effects) < 0.2 * effects.std()
    rows = {"row_features": (np.arange(N_ROWS), ROW_FEATURES)}
    effects = ROW_FEATURES[:, 0]
    model = fitted(features=rows, values=effects[ENTRIES[:, 0]])
    new = np.column_stack([np.arange(N_ROWS), np.full(N_ROWS, 1000)])
    assert rmse(model.predict(new), effects) < 0.2 * effects.std()
    both = model.predict([[1000, 1000]])
    assert both == pytest.approx(model.mean_, abs=0.3)


def test_ids_keep_their_names():
    """Those that have features alone may be longer, or of another type."""
    names = np.array([f"u{i:02d}" for i in range(N_ROWS)])
    entries = np.column_stack([names[ENTRIES[:, 0]], ENTRIES[:, 1].astype(str)])
    frame = pd.DataFrame(ROW_FEATURES, index=names)
    frame.loc["a much longer name"] = ROW_FEATURES[0]
    model = fitted(entries, features={"row_features": (frame.index.to_numpy().astype(str), frame.to_numpy())})
    assert model.row_ids_[-1] == "a much longer name"
    assert model.recommend(["a much longer name"], n=2)[0].shape == (1, 2)
    mixed = pd.DataFrame(ROW_FEATURES[:2], index=pd.Index([0, "new"], dtype=object))
    model = fitted(features={"row_features": mixed})
    assert model.row_ids_.tolist()[-1] == "new"
    assert model.row_ids_.tolist()[0] == 0


FRAME = pd.DataFrame(ROW_FEATURES, columns=["age", "height", "income"])
HOLES = FRAME.where(FRAME.index.to_series() != 3)
BAD_FEATURES = [
    (HOLES, "row_features must have finite numbers .* Fill in what is missing first"),
    ((np.arange(N_ROWS), np.where(ROW_FEATURES > 70, np.inf, ROW_FEATURES)), "must have finite numbers"),
    ((np.arange(N_ROWS), 1e305 * ROW_FEATURES), r"must have finite numbers of at most 1e\+300 in size"),
    ((np.arange(N_ROWS), sparse.csr_matrix(HOLES.to_numpy())), "row_features must have finite numbers"),
    (pd.concat([FRAME, FRAME.loc[[7]]]), "row_features must have one row for each id; 7 repeats"),
    ((np.arange(5), ROW_FEATURES), r"got ids of shape \(5, 1\) for 60 rows"),
    (([], np.zeros((0, 3))), r"must have a matrix of numbers, a row for each id; .* of shape \(0, 3\)"),
    (FRAME.iloc[:0], r"a row for each id; .* of shape \(0, 3\)"),
    ((np.arange(N_ROWS), np.zeros((N_ROWS, 0))), r"a row for each id; .* of shape \(60, 0\)"),
    ((np.arange(N_ROWS), np.zeros(N_ROWS)), r"a row for each id; .* of shape \(60,\)"),
    ((np.arange(N_ROWS), ROW_FEATURES.astype(str)), "must have a matrix of numbers, .* got an array of <U"),
    (
        FRAME.assign(city="Rome"),
        "row_features must have numbers; its column 'city' has dtype .*OneHotEncoder",
    ),
    (FRAME.assign(city=FRAME["age"].astype("category")), "its column 'city' has dtype category"),
    (
        FRAME.set_index(FRAME.index.astype(str)),
        "row_features has none of the rows in X: they are of type int, in row_features of type str",
    ),
    (FRAME.set_index(FRAME.index + 1000), r"row_features has none of the rows in X\."),
    (FRAME.set_index(FRAME.index.where(FRAME.index > 0, np.nan)), "neither missing"),
    (FRAME.set_index([FRAME.index, FRAME.index]), r"of 1 column\(s\) as in X; got ids of shape \(60, 2\)"),
]


@pytest.mark.parametrize("given, message", BAD_FEATURES, ids=[message[:50] for _, message in BAD_FEATURES])
def test_bad_features(given, message):
    """The error says what is wrong, and the fitted model is as it was."""
    model = fitted(features=ROWS)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(ENTRIES[:50], VALUES[:50], row_features=given)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@pytest.mark.parametrize("given", [ROW_FEATURES, [np.arange(60), ROW_FEATURES], {"a": 1}, (1, 2, 3)])
def test_features_of_another_type(given):
    with pytest.raises(
        TypeError, match="column_features must be a data frame indexed by id, or a pair of ids"
    ):
        fitted(features={"column_features": given})


def test_what_is_given_is_left_alone():
    dense, data = ROW_FEATURES.copy(), sparse.csr_matrix(ROW_FEATURES)
    fitted(features={"row_features": (np.arange(N_ROWS), dense)})
    np.testing.assert_array_equal(dense, ROW_FEATURES)
    twice = sparse.csr_matrix((np.ones(2), np.zeros(2, dtype=int), [0, 2] + [2] * 59), shape=(60, 2))
    fitted(features={"row_features": (np.arange(N_ROWS), twice), "column_features": None})
    assert twice.nnz == 2
    once = fitted(features={"row_features": (np.arange(N_ROWS), data)}).predict(EVERYWHERE)
    split = sparse.csr_matrix(
        (np.repeat(data.data, 2) / 2, np.repeat(data.indices, 2), 2 * data.indptr), shape=data.shape
    )
    again = fitted(features={"row_features": (np.arange(N_ROWS), split)}).predict(EVERYWHERE)
    np.testing.assert_allclose(again, once, rtol=1e-6)


def partly_known(seed=0, informative=True):
    """A matrix of which an entry is the more often known the larger it is, or one known at random."""
    rng, shape = np.random.default_rng(seed), (200, 150)
    rank = 2 if informative else 4
    truth = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))
    shares = 0.2 / (1.0 + np.exp(-4.0 * truth)) if informative else np.full(shape, 0.3)
    entries = np.argwhere(rng.uniform(size=shape) < shares)
    return entries, truth[tuple(entries.T)] + 0.5 * rng.normal(size=len(entries)), truth


@pytest.mark.parametrize("seed", range(3))
def test_implicit_features_are_taken_where_the_pattern_tells_something(seed):
    entries, values, truth = partly_known(seed)
    model = HFWMatrixCompletion(random_state=0).fit(entries, values)
    assert model.implicit_ != "none"
    plain = HFWMatrixCompletion(implicit="none", random_state=0).fit(entries, values)
    known = np.zeros_like(truth, dtype=bool)
    known[tuple(entries.T)] = True
    elsewhere = np.argwhere(~known)
    errors = [rmse(each.predict(elsewhere), truth[~known]) for each in (model, plain)]
    assert errors[0] < 0.97 * errors[1]
    given = clone(model).set_params(implicit=model.implicit_).fit(entries, values)
    np.testing.assert_array_equal(given.predict(entries), model.predict(entries))


@pytest.mark.parametrize("seed", range(3))
def test_implicit_features_are_left_out_where_the_pattern_tells_nothing(seed):
    entries, values, _ = partly_known(seed, informative=False)
    assert HFWMatrixCompletion(random_state=0).fit(entries, values).implicit_ == "none"


def test_the_default_radius():
    """It is larger the less is known, and smaller with implicit features."""
    options = {"radius": "scale", "tol": 0.1}
    default = fitted(**options).radius_
    assert default == pytest.approx(fitted(ENTRIES[::4], VALUES[::4], **options).radius_ / 2, rel=0.01)
    assert fitted(implicit="columns", **options).radius_ == pytest.approx(0.6 * default)
    assert fitted(implicit="both", **options).radius_ == pytest.approx(0.36 * default)
    assert default == pytest.approx(1.6 / np.sqrt(len(ENTRIES) / TRUTH.size))
    absolute = fitted(normalize=False, biases="mean", **options)
    assert absolute.radius_ == pytest.approx(default * np.linalg.norm(VALUES - VALUES.mean()))
    relative = fitted(biases="mean", **options)
    np.testing.assert_allclose(absolute.predict(ENTRIES), relative.predict(ENTRIES), rtol=1e-6)
    assert fitted(values=np.full(len(ENTRIES), 2.0), normalize=False, **options).converged_


@pytest.mark.parametrize("implicit", ["rows", "columns", "both"])
@pytest.mark.parametrize("features", [{}, {**ROWS, **COLUMNS}], ids=["implicit", "given"])
def test_a_warm_start_keeps_the_objective(implicit, features):
    model = fitted(ENTRIES[WARM], VALUES[WARM], features=features, implicit=implicit, warm_start=True)
    objective = model.objective_
    model.fit(ENTRIES[WARM], VALUES[WARM], **features)
    assert model.trace_["objective"][0] == pytest.approx(objective, rel=1e-8)
    # With ids that it did not know, and without some that it knew.
    other = ENTRIES[:, 0] > 5
    cold = clone(model).fit(ENTRIES[other], VALUES[other], **features)
    warm = model.fit(ENTRIES[other], VALUES[other], **features)
    assert warm.trace_["objective"][0] < 0.7 * cold.trace_["objective"][0]
    # From a model with other features it starts anew.
    anew = model.fit(ENTRIES[other], VALUES[other], row_features=(np.arange(60), ROW_FEATURES[:, :1]))
    assert anew.trace_["objective"][0] == pytest.approx(cold.trace_["objective"][0])


@pytest.mark.parametrize("implicit", ["rows", "columns", "both"])
def test_weight_is_repetition_and_zero_is_absence(implicit):
    counts = np.random.default_rng(0).integers(0, 3, len(VALUES))
    many = np.repeat(np.arange(len(VALUES)), counts)
    some, options = counts > 0, {"implicit": implicit, "features": ROWS}
    weighted = fitted(weights=counts, **options)
    absent = fitted(ENTRIES[some], VALUES[some], counts[some], **options)
    np.testing.assert_array_equal(weighted.predict(EVERYWHERE), absent.predict(EVERYWHERE))
    assert_agree(weighted, fitted(ENTRIES[many], VALUES[many], **options))


@pytest.mark.parametrize("seed", range(2))
def test_weights_choose_the_features_as_repetitions_do(seed, monkeypatch):
    """The same entries are held out, and a repeated one as a whole."""
    chosen = []

    def spy(self, X, y, weights, given=(None, None), start=None, report=None, began=None):
        held.append(sorted(map(tuple, np.unique(X, axis=0))))
        return complete(self, X, y, weights, given, start, report, began)

    complete = HFWMatrixCompletion._complete
    monkeypatch.setattr(HFWMatrixCompletion, "_complete", spy)
    entries, values, _ = partly_known(seed)
    counts = np.random.default_rng(seed).integers(0, 3, len(values))
    many, some = np.repeat(np.arange(len(values)), counts), counts > 0
    parts = []
    for data in (
        (entries, values, counts),
        (entries[many], values[many], None),
        (entries[some], values[some], counts[some]),
        (entries[::-1], values[::-1], 7 * counts[::-1]),
    ):
        held = []
        chosen.append(HFWMatrixCompletion(bias_penalty=None, random_state=seed).fit(*data).implicit_)
        parts.append(held[1])
    assert parts.count(parts[0]) == len(parts)
    assert len(set(chosen)) == 1


def test_the_same_seed_gives_the_same_bits():
    entries, values, _ = partly_known()
    rows, columns = np.unique(entries[:, 0]), np.unique(entries[:, 1])
    rng = np.random.default_rng(0)
    features = {
        "row_features": (rows, rng.normal(size=(len(rows), 2))),
        "column_features": (columns, sparse.random(len(columns), 5, 0.3, "csr", random_state=0)),
    }
    models = [HFWMatrixCompletion(random_state=3).fit(entries, values, **features) for _ in range(2)]
    np.testing.assert_array_equal(*(model.predict(entries) for model in models))
    assert models[0].gap_ == models[1].gap_
    copy = pickle.loads(pickle.dumps(models[0]))
    np.testing.assert_array_equal(copy.predict(entries), models[0].predict(entries))
