# Three images: --target operator, sidecar (sidecars and dispatchers; no TensorFlow) or worker.
#
#     docker build --target worker --tag registry.example/distributed-input-worker:0.1.0 .
#
# BASE_IMAGE needs Python 3.11 to 3.13 as `python3`, with its venv module, and CA certificates. For
# workers on GPUs, take one with the CUDA libraries.
ARG BASE_IMAGE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
# The Makefile's UV_VERSION.
ARG UV_VERSION=0.13.8
ENV UV_PROJECT_ENVIRONMENT=/opt/distributed-input \
    UV_PYTHON=python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet uv==${UV_VERSION}
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY operator/pyproject.toml operator/
COPY sidecar/pyproject.toml sidecar/

# Each first installs what others wrote, in a layer that a change of our own code leaves alone.
FROM build AS build-operator
ARG SYNC="/opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package distributed-input-operator --extra controller"
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC} --no-install-workspace
COPY operator operator
COPY sidecar sidecar
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC}

FROM build AS build-sidecar
ARG SYNC="/opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package distributed-input"
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC} --no-install-workspace
COPY sidecar sidecar
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC}

FROM build AS build-worker
ARG SYNC="/opt/uv/bin/uv sync --quiet --frozen --no-dev --no-editable --package distributed-input --extra worker"
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC} --no-install-workspace
COPY sidecar sidecar
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC}

FROM ${BASE_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="DistributedInput"
# The root file system may be read-only; what wants a home gets one that is not.
ENV PATH=/opt/distributed-input/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
WORKDIR /tmp
# A number: Kubernetes' runAsNonRoot cannot look a name up.
USER 65532:65532

FROM runtime AS operator
LABEL org.opencontainers.image.title="distributed-input-operator" \
      org.opencontainers.image.description="Reconciles DistributedInputs and injects sidecars"
COPY --from=build-operator /opt/distributed-input /opt/distributed-input
ENTRYPOINT ["distributed-input-operator"]

FROM runtime AS sidecar
LABEL org.opencontainers.image.title="distributed-input-sidecar" \
      org.opencontainers.image.description="Sidecar and dispatcher of a DistributedInput"
COPY --from=build-sidecar /opt/distributed-input /opt/distributed-input
ENTRYPOINT ["distributed-input"]
CMD ["--help"]

FROM runtime AS worker
LABEL org.opencontainers.image.title="distributed-input-worker" \
      org.opencontainers.image.description="Worker of a DistributedInput, with TensorFlow"
COPY --from=build-worker /opt/distributed-input /opt/distributed-input
ENTRYPOINT ["distributed-input"]
CMD ["--help"]
