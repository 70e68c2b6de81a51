"""Nexmark: an auction house's persons, auctions and bids as one stream of events, and queries over it in SQL.

The queries' names and meaning are those of the NEXMark benchmark (Tucker, Tufte, Papadimos, Maier, 2008) as Apache Beam
and Flink run it.
"""
