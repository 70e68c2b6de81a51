"""Where sinks keep what no reader may see, below an output directory or a table's.

::

    _penstock_private/_spark_metadata/...   everything of ours
    _penstock                               a plain file, where earlier releases have a directory: it stops them

A name that begins with ``_`` is not enough. Spark's readers skip such names in the directories that they list, but not
above what a wildcard has matched: ``out/*/*`` finds ``out/_penstock/staged``. Whatever lies below a directory
``_spark_metadata`` they skip in any case, and so do they with what Spark writes there for a table.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.connectors.local_files import create_exclusively, fsync_directory

HOME = "_penstock_private/_spark_metadata"
EARLIER_HOME = "_penstock"
"""Of releases that know only formats 1 and 2 of an output."""
_NOTICE = (
    b"A later release of Penstock writes to this directory: use that release. "
    b"This file stops earlier releases, which would make a directory of this name.\n"
)


def home_of(root: Path) -> str:
    """Where the files are now, relative to the output directory: an earlier release's stay until ``move_home``."""
    is_earlier = not (root / HOME).exists() and (root / EARLIER_HOME).is_dir()
    return EARLIER_HOME if is_earlier else HOME


def make_home(root: Path) -> str:
    """As ``home_of``; the directory is created where there is none. Raises OSError."""
    if not (root / EARLIER_HOME).is_dir():
        root.mkdir(parents=True, exist_ok=True)
        create_exclusively(root / EARLIER_HOME, _NOTICE)
    home = home_of(root)
    (root / home).mkdir(parents=True, exist_ok=True)
    return home


def move_home(root: Path) -> None:
    """Move what earlier releases have left to where it belongs, and stop them. Raises OSError.

    One rename takes everything away from their drivers and slots. Where something made their directory anew after an
    interrupted move, that is put beside it: no log of ours names it.
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
