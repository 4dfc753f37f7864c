# The libraries that bagpipe stands on. Every one is found by pkg-config or by its own CMake package, so a
# cluster's modules (PKG_CONFIG_PATH, CMAKE_PREFIX_PATH) serve as well as a distribution's packages.
find_package(PkgConfig REQUIRED)
find_package(MPI 3.0 REQUIRED COMPONENTS C)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)

# The serial build of HDF5: the commit path uses one writer a file (src/io/README.md).
pkg_check_modules(HDF5 QUIET IMPORTED_TARGET hdf5-serial)
if(NOT HDF5_FOUND)
  pkg_check_modules(HDF5 REQUIRED IMPORTED_TARGET hdf5)
endif()
if(HDF5_VERSION VERSION_LESS 1.10.5) # H5Dget_chunk_info_by_coord
  message(FATAL_ERROR "HDF5 ${HDF5_VERSION} was found, but bagpipe needs 1.10.5 or newer: install one, or load its "
                      "module, so that pkg-config finds it first (PKG_CONFIG_PATH)")
endif()
# H5O_info_t, H5Oget_info2 and H5Literate mean other things from 1.12 on, unless one asks for those of 1.10.
set_property(TARGET PkgConfig::HDF5 APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS H5_USE_110_API)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
# x86: hashing by the widest registers of the CPU at hand, where the library was built with that.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::XXHASH)
check_c_source_compiles("#include <xxh_x86dispatch.h>
int main(void) { return (int)XXH3_64bits(\"\", 0); }" BAGPIPE_HAVE_XXH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
# The patterns of tokenizer.json are Oniguruma's. 6.9.8: limits of one search.
pkg_check_modules(ONIGURUMA QUIET IMPORTED_TARGET oniguruma>=6.9.8)
if(NOT ONIGURUMA_FOUND)
  message(FATAL_ERROR "Oniguruma 6.9.8 or newer was not found: install libonig-dev (Debian's name), or load its module, so "
                      "that pkg-config finds oniguruma.pc (PKG_CONFIG_PATH)")
endif()
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(INIH REQUIRED IMPORTED_TARGET inih)

# Matrix products: oneDNN (2.x or 3.x) where it is found, else float32 through BLAS. Its header and library are looked up
# directly, because Debian's CMake package for it insists on OpenCL. Its threads must be OpenMP's, as ours are.
set(BAGPIPE_HAVE_ONEDNN OFF)
if(NOT BAGPIPE_GEMM STREQUAL "blas")
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h HINTS ENV DNNLROOT PATH_SUFFIXES include)
  find_library(DNNL_LIBRARY dnnl HINTS ENV DNNLROOT PATH_SUFFIXES lib lib64)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version REGEX "define DNNL_VERSION_M[AI]")
    string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" DNNL_VERSION "${dnnl_version}")
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h dnnl_threads
         REGEX "define DNNL_CPU_THREADING_RUNTIME +DNNL_RUNTIME_OMP")
    if(dnnl_threads AND DNNL_VERSION VERSION_GREATER_EQUAL 2.5)
      set(BAGPIPE_HAVE_ONEDNN ON)
      add_library(DNNL::dnnl UNKNOWN IMPORTED)
      set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                            INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
      message(STATUS "Matrix products: oneDNN ${DNNL_VERSION} (${DNNL_LIBRARY})")
    else()
      message(STATUS "oneDNN at ${DNNL_LIBRARY} is left: it is older than 2.5, or its threads are not OpenMP's")
    endif()
  endif()
  if(BAGPIPE_GEMM STREQUAL "onednn" AND NOT BAGPIPE_HAVE_ONEDNN)
    message(FATAL_ERROR "BAGPIPE_GEMM=onednn, but no oneDNN with OpenMP threads was found: set CMAKE_PREFIX_PATH or "
                        "DNNLROOT, or use BAGPIPE_GEMM=blas")
  endif()
endif()
if(NOT BAGPIPE_HAVE_ONEDNN)
  find_package(BLAS REQUIRED)
endif()

# Matrices over ranks (the Laplace approximation): ScaLAPACK where it is found, made for the MPI in use; Debian has one
# library for each MPI, clusters one called scalapack, found through CMAKE_PREFIX_PATH or pkg-config.
set(BAGPIPE_HAVE_SCALAPACK OFF)
if(NOT BAGPIPE_SCALAPACK STREQUAL "off")
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
  check_c_source_compiles("#include <mpi.h>
#ifndef OPEN_MPI
#error another MPI
#endif
int main(void) { return 0; }" BAGPIPE_MPI_IS_OPEN_MPI)
  set(scalapack_names scalapack-mpich scalapack)
  if(BAGPIPE_MPI_IS_OPEN_MPI)
    set(scalapack_names scalapack-openmpi scalapack)
  endif()
  pkg_search_module(SCALAPACK QUIET IMPORTED_TARGET ${scalapack_names})
  add_library(SCALAPACK::SCALAPACK INTERFACE IMPORTED)
  if(SCALAPACK_FOUND)
    # Its own library alone: what that needs it names itself, and Debian's .pc asks for a second MPI's flags.
    find_library(SCALAPACK_LIBRARY NAMES ${SCALAPACK_LIBRARIES} HINTS ${SCALAPACK_LIBRARY_DIRS})
  else()
    find_library(SCALAPACK_LIBRARY NAMES ${scalapack_names} HINTS ENV SCALAPACK_ROOT PATH_SUFFIXES lib lib64)
  endif()
  mark_as_advanced(SCALAPACK_LIBRARY)
  if(SCALAPACK_LIBRARY)
    set(scalapack_program "void Cblacs_gridexit(int context); void pdsyevd_(void);
int main(void) { Cblacs_gridexit(0); pdsyevd_(); return 0; }")
    target_link_libraries(SCALAPACK::SCALAPACK INTERFACE ${SCALAPACK_LIBRARY} MPI::MPI_C)
    set(CMAKE_REQUIRED_LIBRARIES ${SCALAPACK_LIBRARY} MPI::MPI_C)
    check_c_source_compiles("${scalapack_program}" BAGPIPE_SCALAPACK_LINKS)
    if(NOT BAGPIPE_SCALAPACK_LINKS) # a static one does not name LAPACK and BLAS, which it needs
      find_package(LAPACK QUIET)
      if(LAPACK_FOUND)
        list(APPEND CMAKE_REQUIRED_LIBRARIES LAPACK::LAPACK)
        check_c_source_compiles("${scalapack_program}" BAGPIPE_SCALAPACK_LINKS_LAPACK)
        target_link_libraries(SCALAPACK::SCALAPACK INTERFACE LAPACK::LAPACK)
      endif()
    endif()
    if(BAGPIPE_SCALAPACK_LINKS OR BAGPIPE_SCALAPACK_LINKS_LAPACK)
      set(BAGPIPE_HAVE_SCALAPACK ON)
      message(STATUS "Matrices over ranks: ScaLAPACK (${SCALAPACK_LIBRARY})")
    endif()
  endif()
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(BAGPIPE_SCALAPACK STREQUAL "on" AND NOT BAGPIPE_HAVE_SCALAPACK)
    message(FATAL_ERROR "BAGPIPE_SCALAPACK=on, but no ScaLAPACK made for this MPI was found: set CMAKE_PREFIX_PATH or "
                        "SCALAPACK_ROOT, or use BAGPIPE_SCALAPACK=off")
  endif()
endif()

# The tests: cmocka.
set(BAGPIPE_HAVE_TESTS OFF)
if(BAGPIPE_TESTS)
  set(tests_need REQUIRED)
  if(BAGPIPE_TESTS STREQUAL "auto")
    set(tests_need QUIET)
  endif()
  find_package(cmocka ${tests_need})
  if(cmocka_FOUND)
    set(BAGPIPE_HAVE_TESTS ON)
  else()
    message(STATUS "Tests: none, without cmocka (libcmocka-dev)")
  endif()
endif()
