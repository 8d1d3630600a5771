"""Leaderboards that lose nothing: runs go to Kafka first, boards on Redis or Valkey are a maximum of the log."""
