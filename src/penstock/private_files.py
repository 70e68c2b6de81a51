"""Check of the modes of files that hold a secret, such as a key. ssh has the same check."""

from __future__ import annotations

import os
import stat

from penstock.errors import ConfigError


def check_private(what: str, path: str | os.PathLike[str]) -> None:
    """Refuse a file that other users can read.

    The group may read a file that another user owns: a secret that root has mounted has such a mode. Pipes and
    terminals are not checked.

    Args:
        what: the option that names the file, for the message.

    Raises:
        ConfigError: other users can read or write the file.
        OSError: the file does not exist or cannot be examined.
    """
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode) and mode & (0o077 if status.st_uid == os.geteuid() else 0o007):
        raise ConfigError(f"{what} {path} holds a secret and has mode {mode:04o}: others can read it; chmod 600 {path}")
