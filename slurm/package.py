# A Spack recipe of bagpipe: copy it to packages/bagpipe/package.py of a repository of your own (spack repo create), then
#   spack dev-build bagpipe@main          # in the source's root
#
# Not tried: Spack has neither read nor built it. Names of packages and variants are meant as in Spack's builtin
# repository; see there if one is not found.
from spack.package import *


class Bagpipe(CMakePackage):
    """Pretrains language models, trains ensembles and scores corpora on the CPU nodes of a cluster."""

    license("Apache-2.0")
    version("main", branch="main")

    variant("onednn", default=True, description="bf16 matrix products; else any BLAS, in float32")
    variant("scalapack", default=True, description="the Laplace approximation")
    variant("plots", default=False, description="plots with gnuplot")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10.5: ~mpi +threadsafe")
    depends_on("zstd")
    depends_on("zlib-api")
    depends_on("hwloc")
    depends_on("xxhash")
    depends_on("openssl")
    depends_on("jansson")
    depends_on("inih")
    depends_on("utf8proc")
    depends_on("oniguruma@6.9.8:")
    depends_on("blas")
    depends_on("onednn@2.5:3", when="+onednn")
    depends_on("scalapack", when="+scalapack")
    depends_on("gnuplot", when="+plots", type="run")

    def cmake_args(self):
        return [self.define("BAGPIPE_TESTS", False), self.define("BAGPIPE_GEMM", "onednn" if "+onednn" in self.spec else "blas")]

    def setup_run_environment(self, env):
        env.prepend_path("HDF5_PLUGIN_PATH", join_path(self.prefix.lib, "bagpipe", "hdf5-plugin"))
        env.set("BAGPIPE_SLURM", join_path(self.prefix.share, "bagpipe", "slurm"))
