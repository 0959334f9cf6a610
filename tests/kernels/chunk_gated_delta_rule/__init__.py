"""The chunked gated delta rule: results, counts, properties, and what sees its faults."""
