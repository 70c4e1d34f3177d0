# A container image that holds one static binary, the certificates of authorities, and nothing else. docs/operations.md
#
#   docker build -t abide .
#   docker run -d --name abide --stop-timeout 30 -p 8001:8001 -v abide:/data abide

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG RELEASE=0.1.0-dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=$RELEASE" -o /abide ./cmd/abide
RUN mkdir -p /image/data /image/tmp && chmod 700 /image/data && chmod 1777 /image/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /image/data /data
COPY --from=build /image/tmp /tmp
COPY --from=build /abide /abide
# Numeric, so that Kubernetes can see that it is not root.
USER 65532:65532
ENV ABIDE_STORAGE__SQLITE__PATH=/data/abide.db
VOLUME /data
EXPOSE 8001 9090
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/abide", "ready"]
ENTRYPOINT ["/abide"]
CMD ["serve"]
