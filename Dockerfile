# The image for CPUs, NVIDIA GPUs or TPUs. In the repository:
#
#   docker build -t cat_jax .                              # CPUs
#   docker build --build-arg KIND=cuda -t cat_jax:cuda .   # NVIDIA GPUs, or CPUs; or KIND=tpu
#
#   docker run --rm -it -v "$PWD/runs:/cat_jax/runs" cat_jax \
#       --config=configs/digits.py --workdir=runs/digits
#   docker run --rm -it --gpus all -v "$PWD/runs:/cat_jax/runs" -v "$HOME/tensorflow_datasets:/data" \
#       cat_jax:cuda --config=configs/mnist.py:cat_cw --config.data_dir=/data --workdir=runs/mnist
#
# Mount the data sets, because the image has none. launch/k8s/jobset.yaml starts it on a cluster.
FROM python:3.12-slim
ARG KIND=cpu
WORKDIR /cat_jax
COPY requirements.txt requirements-cuda.txt requirements-tpu.txt ./
RUN ln -s requirements.txt requirements-cpu.txt && \
    pip install --no-cache-dir -r "requirements-${KIND}.txt"
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY configs configs
COPY cat_jax cat_jax
RUN pip install --no-cache-dir --no-deps -e .
ENTRYPOINT ["python", "-m", "cat_jax.main"]
