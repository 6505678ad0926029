# Lockstep for CPUs, with Open MPI and sshd. In the repository's top folder:
#   docker build -f launch/docker/cpu.Dockerfile -t lockstep .
#   docker run --rm --shm-size 2g -v "$PWD/runs:/runs" lockstep \
#       /usr/share/lockstep/mpirun -np 2 ddp_train /usr/share/lockstep/models/lenet.cfg \
#       --out /runs/first
ARG BASE=debian:12
FROM ${BASE} AS build
COPY . /src
RUN /src/launch/docker/build_package

FROM ${BASE}
COPY --from=build /lockstep.deb /lockstep.deb
COPY launch/docker/setup_image /tmp/
RUN /tmp/setup_image && rm /tmp/setup_image
WORKDIR /root
CMD ["ddp_train", "--help"]
