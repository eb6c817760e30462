# A device node: the distribution folkman-node, which computes with NumPy. In the root of a checkout:
#
#   docker build -f packaging/docker/node.Dockerfile -t folkman-node .
#   docker run --rm -v "$PWD/board:/cluster" -p 7440:7440 folkman-node
FROM python:3.12-slim AS build
WORKDIR /source
COPY packaging/node packaging/node
COPY src src
RUN python -m venv /opt/folkman
RUN /opt/folkman/bin/pip install --no-cache-dir ./packaging/node

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 folkman && install -d -o folkman -g folkman /cluster
COPY --from=build /opt/folkman /opt/folkman
ENV PATH=/opt/folkman/bin:$PATH
USER folkman
WORKDIR /cluster
EXPOSE 7440
ENTRYPOINT ["folkman"]
CMD ["node", "--config", "/cluster/node.toml"]
