"""Java's ``StrictMath`` over whole vectors: the algorithms of fdlibm 5.3 operation by operation, so the same bits.

fdlibm is (C) 1993, 2004 by Sun Microsystems, Inc.: "Developed at SunSoft, a Sun Microsystems, Inc. business. Permission
to use, copy, modify, and distribute this software is freely granted, provided that this notice is preserved." Its
branches per argument are selections here: every branch is computed for all, and what does not apply is dropped.
"""
