"""What the operators of a site decide: products, images, licence servers, owners' shares, pods."""
