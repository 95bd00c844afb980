# docker build -t tsdiag .
# docker run --rm -v "$PWD:/data" tsdiag probe model.safetensors
#
# The same scripts as in .ci/run and tests/packaging/smoke: the Debian package is built, then installed alone.
FROM debian:bookworm AS build
WORKDIR /source
COPY tools/setup-debian tools/
RUN tools/setup-debian package
COPY . .
RUN cmake --preset release -D TSDIAG_TESTS=OFF
RUN cmake --build --preset release
RUN cpack --config build/release/CPackConfig.cmake -G DEB -D CPACK_COMPONENTS_ALL=program -B /packed

FROM debian:bookworm-slim
RUN --mount=from=build,source=/packed,target=/packed \
    apt-get update && apt-get install --yes /packed/tsdiag_*.deb && rm -rf /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["tsdiag"]
