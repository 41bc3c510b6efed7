//! SelectionService: registry, KV ingestion and one scheduler per partition and stage.
