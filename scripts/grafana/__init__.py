"""Grafana's dashboards as code. `make render` writes them to `dashboards/grafana/`, one file a dashboard and language.

They are values of Grafana's own schema (`grafana-foundation-sdk`, a library of developers only), so they stay out of
the packages that run on a site: those read the files, through `tidemark_operator.monitoring.dashboard_files`.
"""
