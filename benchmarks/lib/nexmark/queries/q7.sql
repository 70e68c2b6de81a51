-- Highest bid of each 10 seconds. Of equal ones the one with the highest auction, bidder and so on.
SELECT top.auction, top.price, top.bidder, top.dateTime, top.extra
FROM (
    SELECT max(named_struct('price', price, 'auction', auction, 'bidder', bidder, 'dateTime', dateTime, 'extra', extra))
        AS top
    FROM bid
    GROUP BY window(dateTime, '10 seconds')
)
