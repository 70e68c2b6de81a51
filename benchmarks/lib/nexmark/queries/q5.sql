-- Hot items: the auctions with the most bids in each sliding window. A second aggregation by the window takes the place
-- of the join with the window's maximum.
WITH counts AS (
    SELECT auction, count(*) AS num, window(dateTime, '10 seconds', '2 seconds') AS w
    FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
),
windows AS (
    SELECT w, max(num) AS most, collect_list(named_struct('auction', auction, 'num', num)) AS items
    FROM counts
    GROUP BY w
)
SELECT item.auction AS auction, item.num AS num, w.start AS starttime, w.end AS endtime
FROM windows LATERAL VIEW explode(filter(items, one -> one.num = most)) AS item
