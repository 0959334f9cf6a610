"""A vector coprocessor: cores with a local memory and one queue of commands each, and a memory that they share."""

from vcop.device import Vcop
from vcop.spec import VcopSpec

__all__ = ["Vcop", "VcopSpec"]
