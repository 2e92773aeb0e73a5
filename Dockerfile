# The image of Belfry: the static binary and a directory for its data, nothing else. There is no shell and no other file.
# `make image` builds the binary into bin/image and this around it; nothing is pulled.
FROM scratch

# The image has no user names, so the number stands for one. A new volume takes over the owner of the directory.
COPY belfry /belfry
COPY --chown=65532:65532 volume/ /
USER 65532:65532

ENV BELFRY_DATA=/data
VOLUME /data

# Clients, other nodes, gossip. The server listens on loopback unless it is told otherwise, in a container too.
EXPOSE 7400/tcp 7401/tcp 7402/tcp 7402/udp

# Asks http://127.0.0.1:7400, or what BELFRY_SERVER says.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/belfry", "health", "--timeout", "3s"]

ENTRYPOINT ["/belfry"]
CMD ["serve"]
