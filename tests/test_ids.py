import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skfw._ids import IdEncoder, check_ids, keep_ids


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-5, 5)), min_size=1), st.data())
@settings(max_examples=50)
def test_ids_are_numbered_and_found_again(ids, data):
    array = np.array(ids, dtype=object)
    encoder = IdEncoder()
    indices = encoder.fit(array)
    assert [tuple(row) for row in encoder.ids[indices]] == ids
    assert sorted(set(indices)) == list(range(len(encoder.ids)))
    np.testing.assert_array_equal(encoder.transform(array), indices)
    other = data.draw(st.tuples(st.text(max_size=3), st.integers(-9, 9)))
    found = encoder.transform(np.array([other], dtype=object))[0]
    assert tuple(encoder.ids[found]) == other if other in ids else found == -1


def test_a_new_combination_of_known_ids_is_new():
    encoder = IdEncoder()
    encoder.fit(np.array([[0, 0], [1, 1]]))
    np.testing.assert_array_equal(encoder.transform(np.array([[1, 1], [0, 1]])), [1, -1])


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.uint64])
@pytest.mark.parametrize("spread", [1, 3, 10**6])
def test_integers_near_together_and_far_apart(kind, spread):
    rng = np.random.default_rng(0)
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    n_values = min(100, (high - low) // spread + 1)
    for start, step in ((low, spread), (high, -spread)):
        values = np.array([start + step * i for i in range(n_values)], dtype=kind)
        known, unknown = values[: n_values // 2 or 1], values[n_values // 2 or 1 :]
        ids = rng.permutation(np.repeat(known, 3))
        encoder = IdEncoder()
        numbers = encoder.fit(ids[:, np.newaxis])
        np.testing.assert_array_equal(encoder.ids[:, 0], np.sort(known))
        np.testing.assert_array_equal(encoder.ids[numbers, 0], ids)
        assert encoder.ids.dtype == kind
        for other in (kind, object):
            both = np.concatenate([known, unknown]).astype(other)[:, np.newaxis]
            found = encoder.transform(both)
            np.testing.assert_array_equal(encoder.ids[found[: len(known)], 0], known)
            assert np.all(found[len(known) :] == -1)


@pytest.mark.parametrize("learned", [np.array([3, 5, 4]), np.array([3, 10**9, 4])])
def test_integers_are_found_as_numbers_of_other_kinds(learned):
    encoder = IdEncoder()
    encoder.fit(learned[:, np.newaxis])
    numbers = {3: 0, 4: 1}
    for asked in (
        np.array([3.0, 4.5, 4.0]),
        np.array([3, "a", 4], dtype=object),
        np.array([3, 7, 4], np.int8),
    ):
        expected = [numbers.get(value, -1) for value in asked.tolist()]
        np.testing.assert_array_equal(encoder.transform(asked[:, np.newaxis]), expected)
    np.testing.assert_array_equal(encoder.transform(np.array([["3"], ["x"]])), [-1, -1])


def test_numbers_and_strings_are_sorted_by_type_and_value():
    values = [*range(12), *(f"id {i}" for i in range(12)), 4.5, 2.5]
    ids = np.random.default_rng(0).permutation(np.array(values, dtype=object))
    encoder = IdEncoder()
    numbers = encoder.fit(ids[:, np.newaxis])
    assert encoder.ids[:, 0].tolist() == [2.5, 4.5, *range(12), *sorted(f"id {i}" for i in range(12))]
    assert encoder.ids[numbers, 0].tolist() == ids.tolist()


@pytest.mark.parametrize("container", [list, tuple])
def test_integers_beside_other_numbers_keep_their_digits(container):
    ids = container([[2**53, 0.5], [2**53 + 1, 0.5], [-(2**53) - 1, 0.5]])
    assert keep_ids(ids).tolist() == list(ids)
    assert len(set(IdEncoder().fit(keep_ids(ids)))) == 3
    small = [[1, 0.5], [2, 0.5]]
    assert keep_ids(small) is small
    for bad in (np.nan, np.inf):  # left for the check of ids
        assert np.asarray(keep_ids([[2**53 + 1, bad]])).dtype == np.float64


@pytest.mark.parametrize(
    "bad", [None, np.nan, np.inf, -np.inf, pd.NA, pd.NaT, [1, 2], {1}, np.ones(2)], ids=lambda bad: str(bad)
)
def test_what_names_nothing(bad):
    for number, feature, axis in ((2, 0, "row"), (0, 1, "column"), (1, 2, "column")):
        ids = np.array([[1, "a", 0.5]] * 3, dtype=object)
        check_ids(ids)
        ids[number, feature] = bad
        with pytest.raises(ValueError, match=rf"(?s)entry {number} has .* as its {axis} id"):
            check_ids(ids)


@pytest.mark.parametrize(
    "ids", [np.array([0.5, np.nan]), np.array([0.5, -np.inf]), np.array(["2020", "NaT"], "M8[D]")]
)
def test_what_names_nothing_in_arrays_of_one_type(ids):
    check_ids(ids[:1, np.newaxis])
    with pytest.raises(ValueError, match=r"entry 1 has .* as its row id"):
        check_ids(ids[:, np.newaxis])


def test_tuples_are_ids():
    ids = np.empty((3, 1), dtype=object)
    ids[:, 0] = [("b", 1), ("a", 2), ("b", 1)]
    check_ids(ids)
    encoder = IdEncoder()
    np.testing.assert_array_equal(encoder.fit(ids), [1, 0, 1])
    assert encoder.ids[:, 0].tolist() == [("a", 2), ("b", 1)]
    np.testing.assert_array_equal(encoder.transform(ids), [1, 0, 1])
