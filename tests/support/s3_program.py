"""moto's S3 server with conditional writes that are atomic, as S3's own are.

moto looks whether there is an object, and writes it, in two steps on a thread of each request: of two that come at the
same moment both may find none, and both be told that they have created it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

ONE_AT_A_TIME = threading.Lock()


def alone(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with ONE_AT_A_TIME:
            return method(*args, **kwargs)

    return locked


WRITES = ("put_object", "_key_response_post")
"""An object, and the end of one that came in parts."""

if __name__ == "__main__":
    for name in WRITES:
        setattr(S3Response, name, alone(getattr(S3Response, name)))
    main()
