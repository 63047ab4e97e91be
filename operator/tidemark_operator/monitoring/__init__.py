"""What a site watches Tidemark with: rules, alerts and their runbooks, made from code. Pure: values in, text out."""
