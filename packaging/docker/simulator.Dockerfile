# folkman with its simulator. In the root of a checkout:
#
#   docker build -f packaging/docker/simulator.Dockerfile -t folkman .
#   docker run --rm -v "$PWD/runs:/work/runs" folkman demo --out runs/demo
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY packaging/pypi_readme.py packaging/
COPY src src
RUN python -m venv /opt/folkman
RUN /opt/folkman/bin/pip install --no-cache-dir ".[dash,devices,export]"

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 folkman && install -d -o folkman -g folkman /work /cluster
COPY --from=build /opt/folkman /opt/folkman
ENV PATH=/opt/folkman/bin:$PATH
USER folkman
WORKDIR /work
EXPOSE 8600
ENTRYPOINT ["folkman"]
CMD ["--help"]
