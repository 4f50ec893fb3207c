//! CUDA as a device.
