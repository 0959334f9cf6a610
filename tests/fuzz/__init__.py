"""Random programs of both devices against an order that is worked out from their text alone."""
