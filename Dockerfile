# Sartor on a CPU: docker build -t sartor . && docker run --rm -v "$PWD:/work" sartor fit photos/ --latency 5ms
FROM python:3.11-slim
WORKDIR /opt/sartor
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src ./src
RUN pip install --no-cache-dir -r requirements.lock \
    && pip install --no-cache-dir --no-deps --no-build-isolation .
WORKDIR /work
ENTRYPOINT ["sartor"]
CMD ["--help"]
