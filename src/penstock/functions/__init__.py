"""SQL functions over Arrow batches, equal to Catalyst's bit for bit: a folder per family.

In each, ``plan`` compiles Catalyst's expressions, on the driver; all other modules compute, in the slots. ``fast_...``
modules are fast paths of whole columns, beside the exact path of each distinct value.
"""

from penstock.functions.core.base import BoundReference, Expression, Literal, Mask
from penstock.functions.core.conf import SessionConf

__all__ = ["BoundReference", "Expression", "Literal", "Mask", "SessionConf"]
