//! Slots, rounds, the sampler's settings and the request queue; one thread owns the device.
