//! Text to token ids and back, and the map from token ids to Engram ids.
