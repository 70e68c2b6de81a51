SELECT
    B.auction, B.bidder, B.price, B.channel, B.url, CAST(B.`dateTime` AS TIMESTAMP(3)) AS bid_dateTime,
    A.itemName, A.description, A.initialBid, A.reserve, CAST(A.`dateTime` AS TIMESTAMP(3)) AS auction_dateTime,
    A.expires, A.seller, A.category
FROM bid AS B JOIN auction AS A
ON B.auction = A.id AND B.`dateTime` BETWEEN A.`dateTime` AND A.`dateTime` + INTERVAL '10' SECOND
WHERE A.category = 10
