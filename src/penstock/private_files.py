"""Check of the permissions of files that hold a secret, such as a key. ssh makes the same check."""

from __future__ import annotations

import os
import stat

from penstock.errors import ConfigError


def check_private(what: str, path: str | os.PathLike[str]) -> None:
    """Refuse a file that other users can read.

    If another user owns the file, its group may read it: secrets that root has mounted have such a mode. Pipes and
    terminals are not checked.

    Args:
        what: the option that names the file; part of the error message.

    Raises:
        ConfigError: other users can access the file.
        OSError: the file does not exist or cannot be examined.
    """
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode) and mode & (0o077 if status.st_uid == os.geteuid() else 0o007):
        raise ConfigError(f"{what} {path} holds a secret and has mode {mode:04o}: others can read it; chmod 600 {path}")
