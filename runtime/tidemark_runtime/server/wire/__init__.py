"""The JSON shapes clients see, as msgspec structs, encoded once at the edge."""
