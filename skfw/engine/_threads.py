"""Threads that help where a processor is free, and cost nothing where none is.

BLAS gives each of its threads an equal part of a product, and then all wait in a loop for the slowest. Beside
another busy process that takes many times as long as one thread alone. So BLAS has one thread during a run,
and products with much data are made of blocks. The caller's thread and its helpers each take the next block
that nobody has, and the caller never waits: a block that a helper has begun and not finished when there is no
other one left, it computes itself. The results are put together in the order of the blocks, so they do not
depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

#: A block of data has about this many numbers: large enough for BLAS, small enough for the cache.
BLOCK = 1 << 18
# Helpers are called where the other blocks take at least this many seconds: many times what it takes to call
# them. With this instead of 0.003 a fit of MovieLens 1M takes 0.96 of the time. Memory is not fast enough for
# more helpers than this.
_LONG, _MOST_HELPERS = 0.001, 7

Array = npt.NDArray[np.float64]
_Block = TypeVar("_Block")
_Result = TypeVar("_Result")


class _Helpers(threading.local):
    """The helpers of the runs in this thread."""

    pool: ThreadPoolExecutor | None = None
    count = 0

    @contextmanager
    def up_to(self, count: int) -> Iterator[None]:
        """Have this many helpers; none is waited for at the end."""
        pool = ThreadPoolExecutor(count) if count else None
        self.pool, self.count = pool, count
        try:
            yield
        finally:
            self.pool, self.count = None, 0
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)


_helpers = _Helpers()
_limit_lock = threading.Lock()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # looks for the libraries, which takes milliseconds


@contextmanager
def thread_pool() -> Iterator[None]:
    """Limit BLAS to one thread, and have as many helpers as it would have had; also a decorator.

    Within another one in the same thread it does nothing. Of those that overlap in several threads the first
    sets the limit, has the helpers, and lifts the limit when it ends: no other thread may do that.
    """
    if not _limit_lock.acquire(blocking=False):
        yield
        return
    try:
        n_threads = max((library["num_threads"] for library in _blas().info()), default=1)
        with _blas().limit(limits=1), _helpers.up_to(min(n_threads - 1, _MOST_HELPERS)):
            yield
    finally:
        _limit_lock.release()


def map_blocks(function: Callable[[_Block], _Result], blocks: Sequence[_Block]) -> list[_Result]:
    """Return the function's results for all blocks, in their order, computed by all threads there are.

    It may be called twice for the same block, so it must not change anything. Where it calls BLAS, that
    should be by ``numpy.dot``: ``@`` may hold Python's lock meanwhile.
    """
    if _helpers.pool is None or len(blocks) == 1:
        return [function(block) for block in blocks]
    began = perf_counter()
    results = {0: function(blocks[0])}
    n_others = len(blocks) - 1
    if n_others * (perf_counter() - began) < _LONG:
        return [results[0], *map(function, blocks[1:])]
    untaken = iter(range(1, len(blocks)))

    def work() -> None:
        for number in untaken:
            results[number] = function(blocks[number])

    help_out = _quietly(work)
    helping = [_helpers.pool.submit(help_out) for _ in range(min(_helpers.count, n_others - 1))]
    try:
        work()
    finally:
        for _ in untaken:  # after an error nobody begins another one
            pass
        for each in helping:
            each.cancel()
    return [
        results[number] if number in results else function(blocks[number]) for number in range(len(blocks))
    ]


def row_blocks(n_rows: int, size: int) -> list[slice]:
    """Return the slices that divide rows into blocks of a size; the last may have fewer."""
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def add_up(results: Iterable[Array]) -> Array:
    """Return the sum of arrays, which is added to the first of them; an iterator makes one at a time."""
    remaining = iter(results)
    total = next(remaining)
    for other in remaining:
        total += other
    return total


def _quietly(function: Callable[[], _Result]) -> Callable[[], _Result]:
    """Return the function with NumPy's settings of this thread, which has asked for no warnings perhaps."""
    settings = np.geterr()

    def with_settings() -> _Result:
        with np.errstate(**settings):
            return function()

    return with_settings
