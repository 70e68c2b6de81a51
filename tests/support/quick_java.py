"""The options of the JVMs that tests start: they live for a minute or two, on few cores and with little data."""

from __future__ import annotations

import sys
from pathlib import Path

QUICK_JAVA = " ".join(
    [
        # Half of the CPU would go into compiling Java well; so it is compiled quickly.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:MetaspaceSize=256m",
        # Compiled code is kept: the small room of a JVM without its better compiler is swept over and over otherwise.
        "-XX:ReservedCodeCacheSize=192m",
        "-XX:-UseCodeCacheFlushing",
        # Hadoop without its native library starts a chmod for every file; so without a second process to start it.
        *(["-Djdk.lang.Process.launchMechanism=VFORK"] if sys.platform == "linux" else []),
    ]
)

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""The classes that Spark loads, as ``make archive`` leaves them; JVMs do without where there is none."""


def quick_java() -> str:
    """The options, and the archive of classes where there is one.

    A JVM that the archive does not fit (another Java, another Spark) goes on without it, and without a word: what it
    prints is looked at by tests.
    """
    if not ARCHIVE.exists():
        return QUICK_JAVA
    return f"{QUICK_JAVA} -Xshare:auto -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"
