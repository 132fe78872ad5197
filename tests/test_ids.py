import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skfw._ids import IdEncoder


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-5, 5)), min_size=1), st.data())
@settings(derandomize=True, deadline=None, max_examples=50)
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
