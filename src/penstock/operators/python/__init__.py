"""Operators that call user functions, in the slot or in a function process."""
