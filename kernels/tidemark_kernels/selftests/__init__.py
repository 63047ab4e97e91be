"""At start: every op a model uses, on the path it runs on, against its plain reference. `every.run` runs them."""
