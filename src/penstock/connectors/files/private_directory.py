"""Private directory of sinks below an output directory or a table's directory. Readers do not read it.

::

    _penstock_private/_spark_metadata/...   all private files
    _penstock                               a plain file in place of the directory of earlier releases: it stops them

A name that begins with ``_`` is not sufficient. Spark's readers skip such names in the directories that they list, but
not in a path that a wildcard has matched: ``out/*/*`` finds ``out/_penstock/staged``. They always skip files below a
directory ``_spark_metadata``, including files that Spark writes there for a table.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.connectors.local_files import create_exclusively, fsync_directory

HOME = "_penstock_private/_spark_metadata"
EARLIER_HOME = "_penstock"
"""Private directory of releases that know only formats 1 and 2 of an output."""
_NOTICE = (
    b"A later release of Penstock writes to this directory: use that release. "
    b"This file stops earlier releases, which would make a directory of this name.\n"
)


def home_of(root: Path) -> str:
    """Return the private directory in use, relative to the output.

    It may be the directory of earlier releases, until ``move_home`` is called.
    """
    is_earlier = not (root / HOME).exists() and (root / EARLIER_HOME).is_dir()
    return EARLIER_HOME if is_earlier else HOME


def make_home(root: Path) -> str:
    """Return the private directory, see ``home_of``, and create it if it is missing. Raise OSError on failure."""
    if not (root / EARLIER_HOME).is_dir():
        root.mkdir(parents=True, exist_ok=True)
        create_exclusively(root / EARLIER_HOME, _NOTICE)
    home = home_of(root)
    (root / home).mkdir(parents=True, exist_ok=True)
    return home


def move_home(root: Path) -> None:
    """Move the private files of earlier releases to the current directory. Raise OSError on failure.

    A single rename moves all files, which stops drivers and slots of earlier releases. If their directory was created
    again after an interrupted move, it is moved to another name, to which no log refers.
    """
    earlier, home = root / EARLIER_HOME, root / HOME
    while not create_exclusively(earlier, _NOTICE) and earlier.is_dir():
        home.parent.mkdir(exist_ok=True)
        target = home / f"left-{secrets.token_hex(8)}" if home.exists() else home
        try:
            os.rename(earlier, target)
        except (FileNotFoundError, IsADirectoryError):
            continue  # another driver has moved it
        fsync_directory(target.parent)
        fsync_directory(root)
