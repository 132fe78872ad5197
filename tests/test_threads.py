"""A fit holds BLAS to one thread while it is inside, and not longer; its helpers never keep it waiting."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Thread, current_thread, main_thread

import numpy as np
import pytest
import threadpoolctl
from sklearn.datasets import load_breast_cancer
from threadpoolctl import threadpool_info, threadpool_limits

from skfw import HFWLogisticRegression
from skfw.engine import (
    Constraint,
    L1Ball,
    LogisticLoss,
    Problem,
    design_matrix,
    frank_wolfe,
    sample_start,
    thread_pool,
)
from skfw.engine._threads import map_blocks

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
LONG = 60.0  # seconds, after which a test has hung


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        # From threadpoolctl 3.8 on only the thread that set a limit first may set others, while it lives.
        openblas = threadpoolctl.OpenBLASController
        getattr(openblas, "clear_controlling_thread", lambda: None)()
        yield
        getattr(openblas, "clear_controlling_thread", lambda **_: None)(force=True)


class Watched(Constraint):
    """An l1 ball that calls a function at its oracle's fourth call."""

    contains_zero = True

    def __init__(self, radius, action):
        self.radius, self.action, self.calls = radius, action, 0

    def lmo(self, direction, hint=None):
        self.calls += 1
        if self.calls == 4:
            self.action()
        return L1Ball(self.radius).lmo(direction)

    def diameter(self, shape):
        return 2.0 * self.radius


def fit_with(action):
    return HFWLogisticRegression(Watched(3.0, action), tol=1e-3).fit(X, y)


def test_one_thread_inside_and_as_many_as_before_outside():
    seen = []
    fit_with(lambda: seen.append(blas_threads()))
    assert seen == [{1}]
    assert blas_threads() == {2}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_limit_is_lifted_after_an_error(error):
    def fail():
        raise error

    for _ in range(2):  # a limit that was left behind would be taken for the original one
        with pytest.raises(error):
            fit_with(fail)
        assert blas_threads() == {2}
    test_one_thread_inside_and_as_many_as_before_outside()


class FitInThread:
    """A fit that goes on only when it is told, and whose thread may live on after it."""

    def __init__(self, thread_lives_on, error=None):
        self.error, self.thread_lives_on = error, thread_lives_on
        self.entered, self.may_go_on, self.ended, self.may_die = Event(), Event(), Event(), Event()
        self.thread = Thread(target=self.run, daemon=True)

    def run(self):
        with suppress(RuntimeError):
            fit_with(self.stay)
        self.ended.set()
        assert self.may_die.wait(LONG)

    def stay(self):
        self.entered.set()
        assert self.may_go_on.wait(LONG)
        if self.error:
            raise self.error

    def enter(self):
        self.thread.start()
        assert self.entered.wait(LONG)

    def end(self):
        self.may_go_on.set()
        assert self.ended.wait(LONG)
        if not self.thread_lives_on:
            self.die()

    def die(self):
        self.may_die.set()
        self.thread.join(LONG)


@pytest.mark.parametrize("error", [None, RuntimeError()], ids=["well", "badly"])
@pytest.mark.parametrize("thread_lives_on", [False, True])
def test_of_overlapping_fits_the_first_lifts_the_limit(error, thread_lives_on):
    """Whichever ends last: another thread could not lift it."""
    for second_ends_first, expected in ((True, [{1}, {1}, {1}, {2}]), (False, [{1}, {1}, {2}, {2}])):
        first, second = FitInThread(thread_lives_on, error), FitInThread(False)
        ends = (second.end, first.end) if second_ends_first else (first.end, second.end)
        seen = []
        for event in (first.enter, second.enter, *ends):
            event()
            seen.append(blas_threads())
        first.die()
        assert seen == expected


def test_direct_users_of_the_engine_get_the_same():
    loss = LogisticLoss(np.where(y == 1, 1.0, -1.0), np.full(len(y), 1.0 / len(y)))
    seen = []
    problem = Problem(loss, design_matrix(X), Watched(3.0, lambda: seen.append(blas_threads())))
    frank_wolfe(problem, max_iter=10)
    assert seen == [{1}]
    assert blas_threads() == {2}
    many = np.tile(X, (9, 1)), np.tile(y, 9)
    loss = LogisticLoss(np.where(many[1] == 1, 1.0, -1.0), np.full(len(many[1]), 1.0 / len(many[1])))
    sample_start(Problem(loss, design_matrix(many[0]), Watched(3.0, lambda: seen.append(blas_threads()))))
    assert seen == [{1}, {1}]


@pytest.fixture
def always_helped(monkeypatch):
    """Helpers are called however short the work is."""
    monkeypatch.setattr("skfw.engine._threads._LONG", 0.0)


def test_blocks_are_shared_and_put_together_in_order(always_helped):
    helped = Event()

    def square(block):
        if current_thread() is main_thread():
            assert block in (0, 1) or helped.wait(LONG)  # the caller waits so that the helper has its share
        else:
            helped.set()
        return block * block

    with thread_pool():
        assert map_blocks(square, range(50)) == [block * block for block in range(50)]
    assert helped.is_set()


def test_nobody_waits_for_a_helper(always_helped):
    """It has begun a block and does not finish it; the caller computes that block, too."""
    begun, may_go_on, calls = Event(), Event(), []

    def slow_in_helpers(block):
        calls.append(block)
        if current_thread() is not main_thread():
            begun.set()
            assert may_go_on.wait(LONG)
        elif block == 1:
            assert begun.wait(LONG)
        return -block

    with thread_pool():
        assert map_blocks(slow_in_helpers, range(10)) == [-block for block in range(10)]
        assert len(calls) == 11  # one of them twice
        may_go_on.set()


def test_an_error_ends_the_work_of_all(always_helped):
    began, calls = Event(), []

    def fail(block):
        calls.append(block)
        if current_thread() is main_thread():
            if block > 0:
                assert began.wait(LONG)
                raise ZeroDivisionError
        else:
            began.set()
            time.sleep(0.001)
        return block

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), thread_pool():
            map_blocks(fail, range(10**5))
        n_calls = len(calls)
        time.sleep(0.05)
        assert len(calls) <= n_calls + 1  # that of a block which was taken before
        assert blas_threads() == {2}


def test_short_work_is_not_shared(monkeypatch):
    monkeypatch.setattr("skfw.engine._threads._LONG", np.inf)
    with thread_pool():
        threads = map_blocks(lambda _: current_thread(), range(100))
    assert set(threads) == {main_thread()}


def test_one_thread_has_no_helpers(always_helped):
    with threadpool_limits(1, user_api="blas"), thread_pool():
        assert set(map_blocks(lambda _: current_thread(), range(100))) == {main_thread()}


def test_helpers_are_as_quiet_as_their_caller(always_helped):
    """NumPy's settings belong to a thread."""
    with np.errstate(all="ignore"), thread_pool():
        settings = map_blocks(lambda _: time.sleep(0.001) or (current_thread(), np.geterr()), range(50))
    assert len({thread for thread, _ in settings}) == 2
    assert all(set(setting.values()) == {"ignore"} for _, setting in settings)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, always_helped, dtype, order):
    monkeypatch.setattr("skfw.engine.data._design_matrix.BLOCK", 300)
    monkeypatch.setattr("skfw.engine.data._design_matrix._FEWEST_ROWS", 1)
    data = np.asarray(X, dtype=dtype, order=order)
    models = []
    for limit in (1, 2):
        with threadpool_limits(limit, user_api="blas"):
            models += [HFWLogisticRegression(c, 2.0, tol=1e-6).fit(data, y) for c in ("l1", "l2", "linf")]
    for one, two in zip(models[:3], models[3:], strict=True):
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.trace_["lower_bound"], two.trace_["lower_bound"])


def test_a_fit_in_a_thread_that_lives_on_takes_nothing_from_others():
    """From threadpoolctl 3.8 on the thread that set a limit may keep all others from setting any."""
    with ThreadPoolExecutor(1) as other:
        other.submit(fit_with, lambda: None).result()
        test_one_thread_inside_and_as_many_as_before_outside()
        with threadpool_limits(1, user_api="blas"):
            assert blas_threads() == {1}


@pytest.mark.parametrize("name", ["_blas", "ThreadPoolExecutor"])
def test_an_error_on_the_way_in_leaves_nothing_behind(monkeypatch, name):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"skfw.engine._threads.{name}", fail)
        with pytest.raises(KeyboardInterrupt):
            fit_with(lambda: None)
    test_one_thread_inside_and_as_many_as_before_outside()
