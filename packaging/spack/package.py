# The recipe for Spack 1.0 or later; untested: Spack has not run it. docs/packages.md says how it is used.
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class TrainerMpi(MakefilePackage, CudaPackage):
    """Trains neural networks from HDF5 data on one or many nodes: convolutional networks, GPTs and
    networks of your own, on CPUs or NVIDIA GPUs, with exact resumption. In C, without Python."""

    # homepage and git: the address of packaging/project, once there is one.

    license("MIT")

    version("main", branch="main")

    variant("images", default=True, description="JPEG and PNG files in trainer import images")
    variant("http", default=True, description="trainer serve and monitor.port")
    variant("tests", default=False, description="The library for the unit tests: make test")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    depends_on("hdf5~mpi")
    depends_on("onednn@2.6:")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("jpeg", when="+images")
    depends_on("libpng", when="+images")
    depends_on("libmicrohttpd", when="+http")
    depends_on("cmocka", type="build", when="+tests")
    with when("+cuda"):
        depends_on("cuda@12.4:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.18:")

    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=80,90")
    for arch in ("50", "52", "60", "61", "70", "72"):
        conflicts(f"cuda_arch={arch}", when="+cuda", msg="GPUs begin with Turing: cuda_arch=75")

    def settings(self):
        """Of make, for all targets: a change would build everything again."""
        spec = self.spec
        # Spack's compiler wrapper adds the flags of the target.
        settings = ["ARCH=", f"PREFIX={self.prefix}", f"MPICC={spec['mpi'].mpicc}", f"HDF5_HOME={spec['hdf5'].prefix}",
                    f"DNNL_HOME={spec['onednn'].prefix}"]
        if spec.satisfies("~images"):
            settings += ["JPEG=0", "PNG=0"]
        if spec.satisfies("~http"):
            settings += ["MICROHTTPD=0"]
        if spec.satisfies("~cuda"):
            return settings + ["CUDA=0"]
        return settings + ["CUDA=1", f"CUDA_HOME={spec['cuda'].prefix}", f"CUDNN_HOME={spec['cudnn'].prefix}",
                           f"NCCL_HOME={spec['nccl'].prefix}", f"CUDA_ARCH={' '.join(spec.variants['cuda_arch'].value)}"]

    @property
    def build_targets(self):
        return self.settings() + ["all"]

    @property
    def install_targets(self):
        return self.settings() + ["install"]

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        # Loaded by name when a server starts.
        if self.spec.satisfies("+http"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["libmicrohttpd"].prefix.lib)
