"""What computes the parts of a model that are no matrix products: on a processor, or on a device."""
