"""Kits for authors: does an operator, a source, a sink or a state backend keep its contract?"""
