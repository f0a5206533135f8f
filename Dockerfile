# The official image of PostgreSQL, with the extension installed and preloaded. Another version:
# docker build --build-arg PG_MAJOR=17 .
ARG PG_MAJOR=18

FROM postgres:${PG_MAJOR} AS build
# Without their versions: the image's release offers one of each, and tomorrow another.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
        g++ libssl-dev make "postgresql-server-dev-${PG_MAJOR}"
COPY . /src
WORKDIR /build
RUN make -f /src/Makefile -j "$(nproc)" with_llvm=no \
    && make -f /src/Makefile with_llvm=no DESTDIR=/out install

FROM postgres:${PG_MAJOR}
COPY --from=build /out /
# What initdb writes into the postgresql.conf of a new cluster.
RUN echo "shared_preload_libraries = 'idempotency'" \
    >> /usr/share/postgresql/postgresql.conf.sample
