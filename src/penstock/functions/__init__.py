"""SQL functions over Arrow batches, equal to Catalyst's bit for bit: a folder per family.

Modules named ``plan`` or ``plan_...`` compile Catalyst's expressions, on the driver. All others compute, in the slots.
"""

from penstock.functions.core.base import BoundReference, Expression, Literal, Mask
from penstock.functions.core.conf import SessionConf

__all__ = ["BoundReference", "Expression", "Literal", "Mask", "SessionConf"]
