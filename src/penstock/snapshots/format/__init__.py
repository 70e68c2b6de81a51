"""What a snapshot consists of: sections, metadata, plans, and checks of them."""
