"""The log: topics on Kafka, what they must be like, and how they are read and written."""
