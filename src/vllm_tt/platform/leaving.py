"""How a forked engine ends: through the exit handlers of C, which multiprocessing leaves out for forked children.

A closed mesh is not the end of it: in such handlers tt-metal's driver closes the chips, and MPI is finalised.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NoReturn

__all__ = ["leave_in_full"]

_RUNTIME = "ttnn"


def leave_in_full() -> None:
    """Have the exit handlers run at the end of this forked process, if it loads the runtime.

    One that its parent has loaded would wait in its handlers for threads that only the parent has.
    """
    if _RUNTIME in sys.modules:
        return
    leave_at_once, engine = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == engine and _RUNTIME in sys.modules:
            ctypes.PyDLL(None).exit(status)  # holds Python's lock: no other thread runs beside the handlers
        leave_at_once(status)

    os._exit = leave
