"""Files that hold a secret, such as a key: they are refused where others can read them, as ssh does."""

from __future__ import annotations

import os
import stat

from penstock.errors import ConfigError


def check_private(what: str, path: str | os.PathLike[str]) -> None:
    """Refuse a file that others can read. A file of another owner may be readable by its group, as a secret that root
    has mounted is; a pipe or terminal is no file.

    Args:
        what: the option that names the file, for the message.

    Raises:
        ConfigError: others can read or write it.
        OSError: it is not there.
    """
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode) and mode & (0o077 if status.st_uid == os.geteuid() else 0o007):
        raise ConfigError(f"{what} {path} holds a secret and has mode {mode:04o}: others can read it; chmod 600 {path}")
