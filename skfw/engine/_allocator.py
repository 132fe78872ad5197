"""What becomes of memory that arrays no longer need."""

from __future__ import annotations

import numpy as np

# A little less than the largest size that glibc learns from.
_LARGEST = (32 << 20) - (1 << 16)


def keep_freed_memory() -> None:
    """Have the C library keep what is freed for the next array, instead of giving it back to the system.

    By default glibc does so below a size only, and the system clears each page before it gives it out again:
    for an array of some megabytes that takes longer than what is computed with it, and a fit makes hundreds
    of them. The size rises to that of the largest array that was freed; so one is freed here that was never
    written to. Before any was, fits took 1.2 to 2 times as long. At most twice that size is kept. Other C
    libraries take no notice.
    """
    np.empty(_LARGEST, dtype=np.uint8)
