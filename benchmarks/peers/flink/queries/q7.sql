SELECT auction, price, bidder, `dateTime`, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end ORDER BY price DESC, auction DESC, bidder DESC, `dateTime` DESC, extra DESC
    ) AS place
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
)
WHERE place = 1
