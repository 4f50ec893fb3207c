//! DeepSeek-V4.1: config, tensor names, layer plan, the forward pass over the device boundary, the oracle.
