"""The operators' decisions: products, images, licence servers, shares, limits."""
