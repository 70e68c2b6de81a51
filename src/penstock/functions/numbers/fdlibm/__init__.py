"""Java's ``StrictMath`` on vectors, with the same bits as results: fdlibm 5.3, operation by operation.

fdlibm is (C) 1993, 2004 by Sun Microsystems, Inc.: "Developed at SunSoft, a Sun Microsystems, Inc. business. Permission
to use, copy, modify, and distribute this software is freely granted, provided that this notice is preserved." Its
branches per argument are selections here: every branch is computed for all arguments, and the applicable results are
selected.
"""
