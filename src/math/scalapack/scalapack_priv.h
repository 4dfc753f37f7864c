/* C declarations of the parts of ScaLAPACK and BLACS in use; they install no header. Fortran's
 * CHARACTER arguments carry their lengths after all others; pdgemm and pdsyrk are written in C and
 * take none. */
#pragma once

#include <mpi.h>
#include <stddef.h>

/* Places in the descriptor of a matrix. */
enum { DESC_TYPE, DESC_CONTEXT, DESC_M, DESC_N, DESC_MB, DESC_NB, DESC_RSRC, DESC_CSRC, DESC_LLD };
#define DESC_COUNT       9
#define DESC_DENSE       1  /* the value of DESC_TYPE */
#define BLACS_NO_CONTEXT -1 /* in the descriptor of a matrix without a part on this rank */

int Csys2blacs_handle(MPI_Comm comm);
void Cfree_blacs_system_handle(int handle);
/* context: in, a system handle; out, the grid. places[columns][ld] are ranks of the system
 * handle's communicator. */
void Cblacs_gridmap(int *context, int *places, int ld, int rows, int columns);
void Cblacs_gridinfo(int context, int *rows, int *columns, int *row, int *column);
void Cblacs_gridexit(int context);

int numroc_(const int *n, const int *block, const int *at, const int *source, const int *parts);

/* b(ib:ib+m-1, jb:jb+n-1) = a(ia:ia+m-1, ja:ja+n-1); `context` holds all ranks of both. */
void pdgemr2d_(const int *m, const int *n, const double *a, const int *ia, const int *ja,
               const int *desc_a, double *b, const int *ib, const int *jb, const int *desc_b,
               const int *context);
void pdsyrk_(const char *triangle, const char *transpose, const int *n, const int *k,
             const double *alpha, const double *a, const int *ia, const int *ja, const int *desc_a,
             const double *beta, double *c, const int *ic, const int *jc, const int *desc_c);
void pdgemm_(const char *transpose_a, const char *transpose_b, const int *m, const int *n,
             const int *k, const double *alpha, const double *a, const int *ia, const int *ja,
             const int *desc_a, const double *b, const int *ib, const int *jb, const int *desc_b,
             const double *beta, double *c, const int *ic, const int *jc, const int *desc_c);
void pdpotrf_(const char *triangle, const int *n, double *a, const int *ia, const int *ja,
              const int *desc_a, int *info, size_t triangle_bytes);
void pdtrtri_(const char *triangle, const char *diagonal, const int *n, double *a, const int *ia,
              const int *ja, const int *desc_a, int *info, size_t triangle_bytes,
              size_t diagonal_bytes);
void pdsyevd_(const char *job, const char *triangle, const int *n, double *a, const int *ia,
              const int *ja, const int *desc_a, double *values, double *z, const int *iz,
              const int *jz, const int *desc_z, double *work, const int *work_count, int *iwork,
              const int *iwork_count, int *info, size_t job_bytes, size_t triangle_bytes);
