"""What a quarter cost and brought: figures from Prometheus and a cost file, each with its formula and inputs."""
