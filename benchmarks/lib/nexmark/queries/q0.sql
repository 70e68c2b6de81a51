-- Pass-through: what moving rows costs.
SELECT auction, bidder, price, dateTime, extra FROM bid
