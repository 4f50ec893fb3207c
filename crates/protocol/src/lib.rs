//! OpenAI-compatible requests to typed ones, and replies to protocol events.
