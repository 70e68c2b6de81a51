"""The log of a snapshot location: its entries, and the fence between drivers."""
