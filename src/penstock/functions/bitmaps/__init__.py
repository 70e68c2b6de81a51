"""Functions of the bitmaps that ``bitmap_construct_agg`` makes."""
