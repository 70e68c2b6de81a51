WITH counts AS (
    SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
),
windows AS (
    SELECT max(num) AS most, starttime, endtime
    FROM (
        SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    )
    GROUP BY starttime, endtime
)
SELECT counts.auction, counts.num, counts.starttime, counts.endtime
FROM counts JOIN windows
ON counts.starttime = windows.starttime AND counts.endtime = windows.endtime AND counts.num >= windows.most
