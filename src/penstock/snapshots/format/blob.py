"""Parts of a discovery state that are too large to be stored again in every snapshot."""

from __future__ import annotations


class Blob(bytes):
    """An immutable part of a discovery state: one whole Arrow IPC stream.

    A state is plain JSON data in which a ``Blob`` may stand anywhere for a value. Snapshots store each blob once, as a
    section, and refer to it for as long as states hold the same bytes; the rest of the state is written every time.
    ``discover`` gets its blobs back as they were.
    """
