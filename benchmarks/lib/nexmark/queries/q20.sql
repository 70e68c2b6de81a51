-- Bids with their auction, of one category. Bounded: bids of the 10 seconds after the auction began.
SELECT
    B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime,
    A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS auction_dateTime, A.expires, A.seller, A.category
FROM bid AS B JOIN auction AS A
ON B.auction = A.id AND B.dateTime >= A.dateTime AND B.dateTime <= A.dateTime + INTERVAL 10 SECONDS
WHERE A.category = 10
