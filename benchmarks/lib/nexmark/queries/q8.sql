-- New users who opened an auction in the same 10 seconds.
SELECT P.id, P.name, P.w.start AS starttime
FROM (SELECT id, name, window(dateTime, '10 seconds') AS w FROM person) AS P
LEFT SEMI JOIN (SELECT seller, window(dateTime, '10 seconds') AS w FROM auction) AS A
ON P.id = A.seller AND P.w = A.w
