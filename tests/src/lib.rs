//! Tests across rooms: edges, the corridor end to end, the policy document's example.
