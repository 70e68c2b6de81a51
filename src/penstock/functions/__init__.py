"""SQL functions over Arrow batches, with results bit for bit equal to Catalyst's. Each family has its own folder.

The ``plan`` module of a family compiles Catalyst expressions on the driver. All other modules compute in the slots.
``fast_...`` modules are fast paths over whole columns; the exact path computes each distinct value.
"""

from penstock.functions.core.base import BoundReference, Expression, Literal, Mask
from penstock.functions.core.conf import SessionConf

__all__ = ["BoundReference", "Expression", "Literal", "Mask", "SessionConf"]
