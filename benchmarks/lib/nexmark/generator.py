"""Nexmark's events by number: event n is the same whoever makes it, in whatever order and batch.

Parameters are those of Apache Beam's generator (``GeneratorConfig``, ``NexmarkConfiguration``) with its defaults: of 50
events one is a person, three are auctions and 46 are bids; half of the bids go to the newest hot auction, three of four
come from the hot bidder, three of four auctions are the hot seller's. Randomness is a hash of the event's number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_AUCTION_RATIO, HOT_SELLER_RATIO, HOT_BIDDER_RATIO, HOT_CHANNEL_RATIO = 2, 4, 4, 2
HOT_EVERY = 100
"""Every so many auctions or persons there is another hot one."""
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT = 1000, 100
ID_LEAD = 10
"""Ids may be named that are not there yet, so many at most."""
CHANNELS = 10_000
EVENTS_PER_SECOND = 10_000
BEGIN_US = 1_436_918_400_000_000
"""2015-07-15, as Beam has it."""

PERSON, AUCTION, BID = 0, 1, 2
"""``event_type``."""

_STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = np.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
_FIRST_NAMES = np.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
_LAST_NAMES = np.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_HOT_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)

_TIME = pa.timestamp("us", tz="UTC")
PERSON_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        *((name, pa.string()) for name in ("name", "emailAddress", "creditCard", "city", "state")),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)
AUCTION_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("dateTime", _TIME),
        ("expires", _TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID_TYPE = pa.struct(
    [
        *((name, pa.int64()) for name in ("auction", "bidder", "price")),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("event_type", pa.int32()),
        ("person", PERSON_TYPE),
        ("auction", AUCTION_TYPE),
        ("bid", BID_TYPE),
        ("dateTime", _TIME),
    ]
)
SPARK_SCHEMA = """event_type int,
person struct<id: bigint, name: string, emailAddress: string, creditCard: string, city: string, state: string,
    dateTime: timestamp, extra: string>,
auction struct<id: bigint, itemName: string, description: string, initialBid: bigint, reserve: bigint,
    dateTime: timestamp, expires: timestamp, seller: bigint, category: bigint, extra: string>,
bid struct<auction: bigint, bidder: bigint, price: bigint, channel: string, url: string, dateTime: timestamp,
    extra: string>,
dateTime timestamp"""

Longs = npt.NDArray[np.int64]


def events(first: int, count: int, seed: int = 0) -> pa.RecordBatch:
    """Events ``first`` to ``first + count - 1``, of ``SCHEMA``: each is one of the three, the other two are null.

    Args:
        seed: another one makes another auction house.
    """
    numbers = np.arange(first, first + count, dtype=np.int64)
    place = numbers % CYCLE
    kinds = np.where(place < PERSONS, PERSON, np.where(place < PERSONS + AUCTIONS, AUCTION, BID)).astype(np.int32)
    parts = [
        _spread(make(_Chance(numbers[kinds == kind], seed)), kinds == kind)
        for kind, make in ((PERSON, _persons), (AUCTION, _auctions), (BID, _bids))
    ]
    return pa.RecordBatch.from_arrays([pa.array(kinds), *parts, _moments(numbers)], schema=SCHEMA)


class _Chance:
    """Random numbers of these events, each drawn under a number of its own."""

    def __init__(self, numbers: Longs, seed: int) -> None:
        self.numbers = numbers
        self._base = _mixed(numbers.astype(np.uint64) ^ _mixed(np.array([seed], np.uint64)))
        self._draws = 0

    def bits(self) -> npt.NDArray[np.uint64]:
        self._draws += 1
        return _mixed(self._base + np.uint64(self._draws * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF))

    def below(self, bound: Longs | int) -> Longs:
        """0 up to, not including, the bound."""
        return (self.bits() % np.asarray(bound).astype(np.uint64)).astype(np.int64)

    def of(self, words: npt.NDArray[np.str_]) -> npt.NDArray[np.str_]:
        return words[self.below(len(words))]

    def price(self) -> Longs:
        """Return a price in cents, from 100 to 100 million; small ones are far more frequent."""
        return np.round(10.0 ** (self.bits() / 2.0**64 * 6.0) * 100.0).astype(np.int64)

    def text(self, length: int) -> pa.Array:
        """So many letters."""
        words = [self.bits() for _ in range(-(-length // 8))]
        letters = _LETTERS[np.stack(words, axis=1).view(np.uint8)[:, :length] % len(_LETTERS)]
        offsets = np.arange(len(self.numbers) + 1, dtype=np.int32) * length
        data = np.ascontiguousarray(letters)
        return pa.StringArray.from_buffers(len(self.numbers), pa.py_buffer(offsets), pa.py_buffer(data))


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _last_person(numbers: Longs) -> Longs:
    """The newest person, counted from 0, at each event."""
    return numbers // CYCLE * PERSONS + np.minimum(numbers % CYCLE, PERSONS - 1)


def _last_auction(numbers: Longs) -> Longs:
    """The newest auction, counted from 0; -1 where there is none yet."""
    place = np.clip(numbers % CYCLE - PERSONS, -1, AUCTIONS - 1)
    return numbers // CYCLE * AUCTIONS + place


def _some_person(chance: _Chance) -> Longs:
    """One of those that are active, or that will soon be there."""
    known = _last_person(chance.numbers) + 1
    active = np.minimum(known, ACTIVE_PERSONS)
    return known - active + chance.below(active + ID_LEAD)


def _hot_person(numbers: Longs) -> Longs:
    return _last_person(numbers) // HOT_EVERY * HOT_EVERY


def _persons(chance: _Chance) -> pa.Array:
    first, last = chance.of(_FIRST_NAMES), chance.of(_LAST_NAMES)
    digits = [np.char.zfill(chance.below(10_000).astype(str), 4) for _ in range(4)]
    card = digits[0]
    for more in digits[1:]:
        card = np.char.add(np.char.add(card, " "), more)
    columns = [
        pa.array(_last_person(chance.numbers) + FIRST_ID),
        _strings(np.char.add(np.char.add(first, " "), last)),
        _joined(chance.text(7), "@", chance.text(5), ".com"),
        _strings(card),
        _strings(chance.of(_CITIES)),
        _strings(chance.of(_STATES)),
        _moments(chance.numbers),
        chance.text(100),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(PERSON_TYPE))


def _auctions(chance: _Chance) -> pa.Array:
    hot = chance.below(HOT_SELLER_RATIO) > 0
    seller = np.where(hot, _hot_person(chance.numbers), _some_person(chance)) + FIRST_ID
    initial = chance.price()
    horizon_ms = AUCTIONS_IN_FLIGHT * CYCLE // AUCTIONS * 1000 // EVENTS_PER_SECOND
    length_us = (1 + chance.below(max(2 * horizon_ms, 1))) * 1000
    columns = [
        pa.array(_last_auction(chance.numbers) + FIRST_ID),
        chance.text(20),
        chance.text(100),
        pa.array(initial),
        pa.array(initial + chance.price()),
        _moments(chance.numbers),
        pa.array(_micros(chance.numbers) + length_us).view(_TIME),
        pa.array(seller),
        pa.array(FIRST_CATEGORY + chance.below(CATEGORIES)),
        chance.text(300),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(AUCTION_TYPE))


def _bids(chance: _Chance) -> pa.Array:
    newest = _last_auction(chance.numbers)
    oldest = np.maximum(newest - AUCTIONS_IN_FLIGHT, 0)
    hot = chance.below(HOT_AUCTION_RATIO) > 0
    auction = np.where(hot, newest // HOT_EVERY * HOT_EVERY, oldest + chance.below(newest - oldest + 1 + ID_LEAD))
    hot = chance.below(HOT_BIDDER_RATIO) > 0
    bidder = np.where(hot, _hot_person(chance.numbers) + 1, _some_person(chance))
    channel, url = _channels(chance)
    columns = [
        pa.array(auction + FIRST_ID),
        pa.array(bidder + FIRST_ID),
        pa.array(chance.price()),
        channel,
        url,
        _moments(chance.numbers),
        chance.text(30),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(BID_TYPE))


def _channels(chance: _Chance) -> tuple[pa.Array, pa.Array]:
    """A channel, and a url in it: of the hot ones without ``channel_id``, of nine in ten of the others with it."""
    hot = chance.below(HOT_CHANNEL_RATIO) > 0
    number = chance.below(CHANNELS)
    names = np.where(hot, _HOT_CHANNELS[number % len(_HOT_CHANNELS)], np.char.add("channel-", number.astype(str)))
    named = ~hot & (chance.below(10) > 0)
    tail = np.where(named, np.char.add("&channel_id=", (number * 71 % (1 << 20)).astype(str)), "")
    folder = [chance.text(5) for _ in range(3)]
    address = ["https://www.nexmark.com/", folder[0], "/", folder[1], "/", folder[2], "/item.htm?query=1"]
    return _strings(names), _joined(*address, _strings(tail))


def _micros(numbers: Longs) -> Longs:
    """Whole milliseconds, as Beam has them."""
    return BEGIN_US + numbers * 1_000 // EVENTS_PER_SECOND * 1_000


def _moments(numbers: Longs) -> pa.Array:
    return pa.array(_micros(numbers)).view(_TIME)


def _strings(words: npt.NDArray[np.str_]) -> pa.Array:
    return pa.array(words.tolist(), pa.string())


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _spread(values: pa.Array, where: npt.NDArray[np.bool_]) -> pa.Array:
    """The values where they belong, nulls elsewhere."""
    places = np.cumsum(where) - 1
    return values.take(pa.array(places, mask=~where))


def write_parquet(folder: Path, count: int, files: int, seed: int = 0) -> None:
    """Write the first ``count`` events in order into Parquet files, without compression and dictionaries.

    This form costs readers the least CPU. Flink reads files of bare columns, which need no decoding at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        first, end = count * number // files, count * (number + 1) // files
        batch = events(first, end - first, seed)
        path = folder / f"events-{number:05d}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), path, compression="none", use_dictionary=False)
