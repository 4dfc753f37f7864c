/* Which strangers' files have been inspected, and that they are still the same. */
#include "store/corpus_admit.h"

#include "corpus_priv.h"

#include "mesh/collective.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ADMISSIONS 1024 /* a file beyond these is inspected whenever it is opened */

typedef struct admission {
    bp_file_identity identity;
    char content_hash[33];
} admission;

/* Of this process; under HDF5's lock. */
static admission admitted[ADMISSIONS];
static int64_t admitted_count;

bp_err bp_file_identify(int fd, const char *path, bp_file_identity *identity)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", path);
    *identity = (bp_file_identity){
        .device = (uint64_t)status.st_dev,
        .inode = (uint64_t)status.st_ino,
        .bytes = (int64_t)status.st_size,
        .modified_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec,
        .changed_ns = (int64_t)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec};
    return BP_OK;
}

bool bp_file_is_unchanged(int fd, const bp_file_identity *identity)
{
    bp_file_identity now;

    return bp_file_identify(fd, "", &now) == BP_OK && now.device == identity->device &&
           now.inode == identity->inode && now.bytes == identity->bytes &&
           now.modified_ns == identity->modified_ns;
}

/* Another host numbers its devices in another way, so they are not compared. A copy of the file has
 * another inode or times, and is inspected. */
static bool is_same(const bp_file_identity *a, const bp_file_identity *b)
{
    return a->inode == b->inode && a->bytes == b->bytes && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

static const admission *find(const bp_file_identity *identity)
{
    for (int64_t k = 0; k < admitted_count; k++)
        if (is_same(&admitted[k].identity, identity))
            return &admitted[k];
    return NULL;
}

bool bp_corpus_is_admitted(const bp_file_identity *identity, char content_hash[33])
{
    const admission *found;

    bp_h5_lock();
    found = find(identity);
    if (found != NULL)
        memcpy(content_hash, found->content_hash, 33);
    bp_h5_unlock();
    return found != NULL;
}

void bp_corpus_admit(const bp_file_identity *identity, const char *content_hash)
{
    bp_h5_lock();
    if (find(identity) == NULL && admitted_count < ADMISSIONS) {
        admission *next = &admitted[admitted_count++];

        next->identity = *identity;
        (void)snprintf(next->content_hash, sizeof next->content_hash, "%s", content_hash);
    }
    bp_h5_unlock();
}

static int64_t count_admitted(void)
{
    int64_t count;

    bp_h5_lock();
    count = admitted_count;
    bp_h5_unlock();
    return count;
}

/* Nothing is taken out, so that what was counted stays. */
static admission admission_at(int64_t k)
{
    admission one;

    bp_h5_lock();
    one = admitted[k];
    bp_h5_unlock();
    return one;
}

void bp_corpus_admitted_share(MPI_Comm comm)
{
    int64_t count = count_admitted();

    bp_bcast_bytes(&count, sizeof count, 0, comm);
    for (int64_t k = 0; k < count; k++) {
        admission one = admission_at(k); /* the root's is sent; the others' is overwritten */

        bp_bcast_bytes(&one, sizeof one, 0, comm);
        bp_corpus_admit(&one.identity, one.content_hash);
    }
}
