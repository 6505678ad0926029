# Lockstep for GPUs: cpu.Dockerfile with device cuda. The host needs NVIDIA's driver and its
# container toolkit.
#   docker build -f launch/docker/cuda.Dockerfile -t lockstep-cuda .
#   docker run --rm --gpus all --shm-size 2g -v "$PWD/runs:/runs" lockstep-cuda \
#       /usr/share/lockstep/mpirun -np 1 ddp_train /usr/share/lockstep/models/lenet.cfg \
#       --device cuda --out /runs/first
ARG CUDA=13.0.2
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
COPY . /src
RUN /src/launch/docker/build_package -DDP_CUDA=on

FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu24.04
COPY --from=build /lockstep.deb /lockstep.deb
COPY launch/docker/setup_image /tmp/
RUN /tmp/setup_image && rm /tmp/setup_image
WORKDIR /root
CMD ["ddp_train", "--help"]
