"""What the operators of a site decide: products, images, licence servers, shares, limits."""
