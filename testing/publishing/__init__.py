"""Release artefacts: builds, checks, signs and publishes wheels, sdists and the chart.

`make release VERSION=X.Y.Z` publishes nothing. With `PUBLISH=1 REGISTRY=… INDEX_URL=…` it does. The
images are built by the release workflow, because they need builders of several architectures.
"""
