"""The real engine (scheduler, pool, swap, lanes, overload) on a virtual clock, for a device and a model one lacks."""
