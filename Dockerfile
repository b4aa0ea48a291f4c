# Builds three images: --target operator, --target sidecar or --target worker. The image `sidecar` is
# for sidecars and dispatchers. It does not contain TensorFlow.
#
#     docker build --target worker --tag registry.example/distributed-input-worker:VERSION .
#
# VERSION and REVISION are build arguments for the labels of the images.
#
# BASE_IMAGE must contain Python 3.11 to 3.13 as `python3`, its venv module, and CA certificates. With
# OpenSSL 3.1 or later, TLS takes a third less CPU than with 3.0.
#
# For workers on GPUs, set BASE_IMAGE to an image with the CUDA libraries, and set
# --build-arg TENSORFLOW="--package distributed-input --extra worker". The default is TensorFlow
# without GPU kernels, on platforms that have it.
ARG BASE_IMAGE=docker.io/library/python:3.12-slim-trixie

# In each image, the dependencies are one layer and our own code is another layer. A new version of
# our code transfers a megabyte, not a gigabyte.
FROM ${BASE_IMAGE} AS build
# Must be equal to UV_VERSION in the Makefile.
ARG UV_VERSION=0.13.8
ENV UV_PROJECT_ENVIRONMENT=/opt/distributed-input/venv \
    UV_PYTHON=python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_QUIET=1
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet uv==${UV_VERSION}
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY operator/pyproject.toml operator/
COPY sidecar/pyproject.toml sidecar/
ENV SYNC="/opt/uv/bin/uv sync --frozen --inexact --no-dev --no-install-workspace"
# Add the folder with our own code to the path of every environment.
RUN python3 -m venv --without-pip ${UV_PROJECT_ENVIRONMENT} && \
    echo /opt/distributed-input/code > \
        $(${UV_PROJECT_ENVIRONMENT}/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/code.pth

FROM build AS venv-operator
RUN --mount=type=cache,target=/root/.cache/uv \
    ${SYNC} --package distributed-input-operator --extra controller

FROM build AS venv-sidecar
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC} --package distributed-input --extra cli

FROM venv-sidecar AS venv-worker
ARG TENSORFLOW="--only-group worker"
RUN --mount=type=cache,target=/root/.cache/uv ${SYNC} ${TENSORFLOW}

FROM build AS code-sidecar
# For the native ops. Without a compiler, workers encode rows in Python, which takes more CPU.
RUN command -v c++ >/dev/null || \
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends g++ >/dev/null; } || \
    echo 'no C++ compiler'
ENV INSTALL="/opt/uv/bin/uv pip install --no-deps --python /opt/distributed-input/venv --target /opt/distributed-input/code"
# Links in the folders of both distributions point to it.
COPY LICENSE ./
COPY sidecar sidecar
RUN --mount=type=cache,target=/root/.cache/uv ${INSTALL} ./sidecar

FROM code-sidecar AS code-operator
COPY operator operator
RUN --mount=type=cache,target=/root/.cache/uv ${INSTALL} ./operator

FROM ${BASE_IMAGE} AS runtime
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="DistributedInput"
# The root file system may be read-only, so HOME is a writable folder. USER is set because the numeric
# user below has no entry in the user database.
ENV PATH=/opt/distributed-input/code/bin:/opt/distributed-input/venv/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    USER=distributed-input
WORKDIR /tmp
# Numeric, because Kubernetes cannot verify runAsNonRoot for a user name.
USER 65532:65532

FROM runtime AS operator
LABEL org.opencontainers.image.title="distributed-input-operator" \
      org.opencontainers.image.description="Reconciles DistributedInputs and injects sidecars"
COPY --from=venv-operator /opt/distributed-input /opt/distributed-input
COPY --from=code-operator /opt/distributed-input/code /opt/distributed-input/code
ENTRYPOINT ["distributed-input-operator"]

FROM runtime AS sidecar
LABEL org.opencontainers.image.title="distributed-input-sidecar" \
      org.opencontainers.image.description="Sidecar and dispatcher of a DistributedInput"
COPY --from=venv-sidecar /opt/distributed-input /opt/distributed-input
COPY --from=code-sidecar /opt/distributed-input/code /opt/distributed-input/code
ENTRYPOINT ["distributed-input"]
CMD ["--help"]

FROM runtime AS worker
LABEL org.opencontainers.image.title="distributed-input-worker" \
      org.opencontainers.image.description="Worker of a DistributedInput, with TensorFlow"
COPY --from=venv-worker /opt/distributed-input /opt/distributed-input
COPY --from=code-sidecar /opt/distributed-input/code /opt/distributed-input/code
ENTRYPOINT ["distributed-input"]
CMD ["--help"]
