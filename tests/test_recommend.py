"""The best columns of a row, and similar rows and columns, against sorted lists of all of them."""

import tracemalloc
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skfw import HFWMatrixCompletion
from skfw._ids import IdEncoder

ROWS, COLUMNS = np.arange(40), np.arange(25)
SHAPE = 40, 25
RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(40, 2)) @ RNG.normal(size=(2, 25)) + 2.0
KNOWN = RNG.uniform(size=SHAPE) < 0.6
KNOWN[3] = True  # nothing is left for this row,
KNOWN[4] = np.arange(25) < 23  # and two columns for this one
ENTRIES = RNG.permutation(np.argwhere(KNOWN))
VALUES = TRUTH[tuple(ENTRIES.T)] + 0.1 * RNG.normal(size=len(ENTRIES))

WORDS = np.array([f"film {number:02d}" for number in range(25)])
MIXED = np.array([number if number % 2 else f"user {number}" for number in range(40)], dtype=object)


def completed(rows=ROWS, columns=COLUMNS, **params):
    """Return a model of the entries, with these ids for their rows and columns."""
    entries = pd.DataFrame({0: rows[ENTRIES[:, 0]], 1: columns[ENTRIES[:, 1]]})
    return HFWMatrixCompletion(random_state=0, **params).fit(entries, VALUES)


@pytest.fixture(scope="module")
def model():
    return completed()


def ranked(scores, columns, n):
    """Return the columns with the largest scores, of equal ones the first, and the scores; padded to n."""
    best = sorted(columns, key=lambda column: (-scores[column], column))[:n]
    padding = n - len(best)
    return best + [None] * padding, np.append(scores[best], np.full(padding, np.nan))


def check_ranking(ids, scores, expected):
    assert ids.tolist() == [best for best, _ in expected]
    largest = np.reshape([scores for _, scores in expected], scores.shape)
    np.testing.assert_allclose(scores, largest, rtol=1e-10, atol=1e-12)


def dense_predictions(model):
    return model.predict(np.argwhere(np.ones(SHAPE))).reshape(SHAPE)


@pytest.mark.parametrize("exclude_known", [True, False])
@pytest.mark.parametrize("candidates", [None, [20, 3, 24, 3, 11, 7], [5], []])
@pytest.mark.parametrize("n", [1, 4, 25, 30])
@pytest.mark.parametrize("row_ids", [None, [7, 3, 4, 7], []])
def test_recommend_returns_the_largest_predictions(model, row_ids, n, candidates, exclude_known):
    predictions = dense_predictions(model)
    expected = []
    for row in range(40) if row_ids is None else row_ids:
        columns = set(range(25) if candidates is None else candidates)
        if exclude_known:
            columns -= set(np.flatnonzero(KNOWN[row]))
        expected.append(ranked(predictions[row], columns, n))
    ids, found = model.recommend(row_ids, n, candidates=candidates, exclude_known=exclude_known)
    assert ids.shape == found.shape == (len(expected), n)
    assert ids.dtype == model.column_ids_.dtype
    check_ranking(ids, found, expected)


def test_places_without_a_column_are_masked_and_nan(model):
    ids, predictions = model.recommend([4, 7], n=3)
    np.testing.assert_array_equal(ids.mask, [[False, False, True], [False] * 3])
    np.testing.assert_array_equal(np.isnan(predictions), ids.mask)
    ids, predictions = model.recommend([4, 7], n=2)
    assert type(ids) is type(predictions) is np.ndarray
    ids, predictions = model.recommend([3], n=2)
    assert ids.mask.all()
    assert np.isnan(predictions).all()


@pytest.mark.parametrize("columns", [WORDS, WORDS.astype(object), np.arange(25), np.arange(25) + 0.5])
def test_a_frame_of_recommendations(columns):
    model = completed(columns=columns)
    ids, predictions = model.recommend(n=8)
    frame = pd.DataFrame(
        {"row": np.repeat(model.row_ids_, 8), "column": ids.ravel(), "prediction": predictions.ravel()}
    ).dropna()
    assert frame["row"].value_counts().to_dict() == {
        row: min(left, 8) for row, left in enumerate(np.sum(~KNOWN, axis=1)) if left
    }
    assert not any(
        KNOWN[row, columns.tolist().index(column)] for row, column, _ in frame.itertuples(index=False)
    )
    np.testing.assert_allclose(
        model.predict(frame[["row", "column"]].to_numpy(dtype=object)), frame["prediction"]
    )


def test_strings_in_an_array():
    entries = np.column_stack([MIXED[ENTRIES[:, 0]].astype(str), WORDS[ENTRIES[:, 1]]])
    model = HFWMatrixCompletion(random_state=0).fit(entries, VALUES)
    ids, _ = model.recommend(["user 4", "7"], n=3, candidates=WORDS[[24, 23, 0]])
    assert ids.dtype == WORDS.dtype
    assert set(ids[0].compressed()) == {"film 23", "film 24"}


def test_recommend_keeps_the_ids_it_is_asked_for():
    model = completed(rows=MIXED, columns=MIXED[:25])
    expected, _ = model.recommend(MIXED[[7, 6]], n=3, candidates=MIXED[:20])
    for asked in ([7, "user 6"], (7, "user 6"), pd.Series([7, "user 6"]), pd.Index([7, "user 6"])):
        ids, _ = model.recommend(asked, n=3, candidates=MIXED[:20].tolist())
        assert ids.tolist() == expected.tolist()
    assert model.recommend("user 6", n=3, candidates=MIXED[:20])[0].tolist() == expected[1:].tolist()


def test_columns_that_several_features_name(model):
    names = pd.DataFrame({"shelf": WORDS[ENTRIES[:, 1] // 5], "place": ENTRIES[:, 1] % 5})
    several = HFWMatrixCompletion(random_state=0).fit(
        names.assign(row=ENTRIES[:, 0])[["row", *names]], VALUES
    )
    columns = np.array([20, 3, 24, 3, 11])
    candidates = pd.DataFrame({"shelf": WORDS[columns // 5], "place": columns % 5})
    expected, predictions = model.recommend(n=4, candidates=columns)
    for asked in (candidates, list(candidates.itertuples(index=False))):
        ids, found = several.recommend(n=4, candidates=asked)
        assert ids.shape == (40, 4, 2)
        np.testing.assert_array_equal(ids.mask, np.repeat(expected.mask[:, :, np.newaxis], 2, axis=2))
        numbers = [5 * WORDS.tolist().index(shelf) + place for shelf, place in ids[~expected.mask].tolist()]
        assert numbers == expected.compressed().tolist()
        np.testing.assert_allclose(found, predictions)
    similar, cosines = several.similar_columns(candidates, n=3)
    assert similar.shape == (5, 3, 2)
    np.testing.assert_allclose(cosines, model.similar_columns(columns, n=3)[1])


@pytest.mark.parametrize("n", [3, 10, 25])
def test_equal_predictions_are_in_the_order_of_columns(model, n):
    tied = deepcopy(model)
    tied.column_factors_[:] = 0.0
    tied.column_biases_ = np.random.default_rng(0).integers(0, 3, 25).astype(float)
    expected = [ranked(tied.column_biases_, set(np.flatnonzero(~known)), n)[0] for known in KNOWN]
    assert tied.recommend(n=n)[0].tolist() == expected
    assert tied.similar_columns([3], n=3)[0].tolist() == [[0, 1, 2]]


def test_clipping_does_not_change_the_order(model):
    clipped = completed(clip=(0.0, 2.0))
    ids, predictions = model.recommend(n=5)
    clipped_ids, clipped_predictions = clipped.recommend(n=5)
    assert clipped_ids.tolist() == ids.tolist()
    assert np.sum(predictions > 2.0, axis=1).max() > 1
    np.testing.assert_array_equal(clipped_predictions, np.clip(predictions, 0.0, 2.0))


def test_entries_of_weight_zero_are_not_known():
    weights = np.where(ENTRIES[:, 0] == 3, np.arange(len(ENTRIES)) % 2, 1.0)
    model = HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES, weights)
    ids, _ = model.recommend([3], n=25)
    assert set(ids.compressed()) == set(ENTRIES[weights == 0.0, 1])


@pytest.mark.parametrize("n", [1, 5, 60])
@pytest.mark.parametrize("axis", ["rows", "columns"])
@pytest.mark.parametrize("asked", [None, [7, 3, 7], []])
def test_similar_ones_have_the_largest_cosines(model, axis, asked, n):
    low_rank = model.row_factors_ @ model.column_factors_.T
    vectors = low_rank if axis == "rows" else low_rank.T
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = directions @ directions.T
    everyone = range(len(vectors))
    expected = [
        ranked(cosines[one], set(everyone) - {one}, n) for one in (everyone if asked is None else asked)
    ]
    ids, found = getattr(model, f"similar_{axis}")(asked, n)
    assert ids.shape == found.shape == (len(expected), n)
    check_ranking(ids, found, expected)


def test_the_cosine_with_a_zero_vector_is_zero(model):
    model = deepcopy(model)
    model.column_factors_[[5, 8]] = 0.0
    ids, cosines = model.similar_columns([5], n=3)
    assert ids.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(cosines, 0.0)
    ids, cosines = model.similar_columns([4], n=24)
    assert cosines[ids == 5].tolist() == [0.0]


def test_cosines_are_at_most_one(model):
    model = deepcopy(model)
    model.row_factors_ = np.outer(np.linspace(-2.0, 3.0, 40), model.row_factors_[0])
    _, cosines = model.similar_rows(n=39)
    np.testing.assert_allclose(np.abs(cosines), 1.0)
    assert np.abs(cosines).max() == 1.0


def test_a_model_without_a_low_rank_part():
    entries = np.argwhere(np.ones((4, 3)))
    model = HFWMatrixCompletion(biases="mean", random_state=0).fit(entries, np.full(12, 2.0))
    assert model.rank_ == 0
    np.testing.assert_array_equal(model.similar_rows(n=2)[0], [[1, 2], [0, 2], [0, 1], [0, 1]])
    np.testing.assert_array_equal(model.recommend(n=2, exclude_known=False)[0], [[0, 1]] * 4)


@pytest.mark.parametrize("unit", [1e-300, 1e150])
def test_similarity_does_not_depend_on_the_unit(model, unit):
    scaled = HFWMatrixCompletion(random_state=0).fit(ENTRIES, unit * VALUES)
    np.testing.assert_allclose(scaled.similar_rows()[1], model.similar_rows()[1], rtol=1e-6)


@pytest.mark.parametrize("block", [1, 80])
def test_blocks_change_nothing(monkeypatch, model, block):
    def results():
        return [*model.recommend(np.arange(40)[::-1], n=5), *model.similar_rows(), *model.similar_columns()]

    at_once = results()
    monkeypatch.setattr("skfw._recommend._BLOCK", block)
    for found, expected in zip(results(), at_once, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def large_model(n_rows, n_columns=300, rank=3):
    """Return a model as if fitted, and its rows have a tenth of all entries."""
    rng = np.random.default_rng(0)
    model = HFWMatrixCompletion(clip=(0.0, 1.0))
    for axis, size in (("row", n_rows), ("column", n_columns)):
        encoder = IdEncoder()
        encoder.fit(np.arange(size)[:, np.newaxis])
        setattr(model, f"_{axis}_encoder", encoder)
        setattr(model, f"{axis}_ids_", encoder.ids[:, 0])
        setattr(model, f"{axis}_factors_", rng.normal(size=(size, rank)))
        setattr(model, f"{axis}_biases_", rng.normal(size=size))
    model.mean_, model.singular_values_ = 0.0, np.arange(rank, 0.0, -1.0)
    model._observed = sparse.random(n_rows, n_columns, 0.1, format="csr", random_state=0).astype(bool)
    return model


@pytest.mark.parametrize("candidates", [None, np.arange(150)])
def test_memory_does_not_depend_on_the_number_of_rows(candidates):
    extra = []
    for n_rows in (16_000, 40_000):
        model = large_model(n_rows)
        model.recommend([0])
        tracemalloc.start()
        result = model.recommend(candidates=candidates)
        extra.append(tracemalloc.get_traced_memory()[1] - sum(array.nbytes for array in result))
        tracemalloc.stop()
    # One index for each row, of which the result has twenty numbers.
    assert extra[1] - extra[0] < 1.5 * 8 * 24_000


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda model: model.recommend([1, 99]), "Row 99 was not seen in fit."),
        (
            lambda model: model.recommend(["1"]),
            "Row '1' was not seen in fit: it is of type str, in fit of type int.",
        ),
        (lambda model: model.recommend([1], n=0), "n must be an integer of at least 1; got n=0."),
        (lambda model: model.recommend([1], candidates=[2, 99]), "Column 99 was not seen in fit."),
        (
            lambda model: model.recommend([1], candidates=["2"]),
            "Column '2' was not seen in fit: it is of type str, in fit of type int.",
        ),
        (
            lambda model: model.recommend([1], exclude_known=1),
            "exclude_known must be True or False; got exclude_known=1.",
        ),
        (lambda model: model.similar_columns([99]), "Column 99 was not seen in fit."),
        (
            lambda model: model.similar_columns(model.recommend([4], n=3)[0]),
            "Ids of columns must not be masked; ids.compressed() leaves those out.",
        ),
        (lambda model: model.similar_rows([-1]), "Row -1 was not seen in fit."),
        (lambda model: model.similar_rows([1], n=2.5), "n must be an integer of at least 1; got n=2.5."),
    ],
)
def test_the_message_says_what_is_wrong(model, use, message):
    with pytest.raises(ValueError) as caught:
        use(model)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "candidates, message",
    [
        ([[0, 1], [4, 9]], "Column (4, 9) was not seen in fit."),
        ([["0", 1]], "Column ('0', 1) was not seen in fit: it is of type str, in fit of type int."),
        (
            [0, 1],
            "Ids of columns must have shape (n_columns, 2), as many features as in fit; got shape (2,).",
        ),
        (
            [[0, 1, 2]],
            "Ids of columns must have shape (n_columns, 2), as many features as in fit; got shape (1, 3).",
        ),
    ],
)
def test_the_message_says_what_is_wrong_with_several_features(candidates, message):
    entries = np.column_stack([ENTRIES[:, 0], ENTRIES[:, 1] // 5, ENTRIES[:, 1] % 5])
    model = HFWMatrixCompletion(random_state=0).fit(entries, VALUES)
    with pytest.raises(ValueError) as caught:
        model.recommend(candidates=candidates)
    assert str(caught.value) == message


@pytest.mark.parametrize("method", ["recommend", "similar_rows", "similar_columns"])
def test_unfitted(method):
    with pytest.raises(NotFittedError):
        getattr(HFWMatrixCompletion(), method)([1])
