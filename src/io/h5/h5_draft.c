/* An HDF5 file that is there whole or not at all: temporary name, user block, rename. */
#include "io/h5/h5_draft.h"

#include "base/fs.h"
#include "base/mem.h"
#include "io/h5/user_block.h"

#include <stdio.h>
#include <unistd.h>

bp_err bp_h5_draft_begin(bp_h5_draft *draft, const char *path, int version)
{
    *draft = (bp_h5_draft){.path = bp_strdup(path), .temporary = bp_sprintf("%s.tmp", path)};

    bp_err err = bp_h5_create_as(&draft->file, draft->temporary, path);
    if (err == BP_OK)
        err = bp_h5_put_int(draft->file, "/", "format_version", version);
    return err;
}

bp_err bp_h5_draft_commit(bp_h5_draft *draft, const char *kind, int version)
{
    bp_user_block block = {.version = version};
    bp_err err = bp_h5_close(&draft->file);

    (void)snprintf(block.kind, sizeof block.kind, "%s", kind);
    if (err == BP_OK)
        err = bp_user_block_seal(&block, draft->temporary);
    if (err == BP_OK && rename(draft->temporary, draft->path) != 0)
        err = bp_fail_errno(BP_ERR_IO, "rename", draft->path);
    if (err == BP_OK) { /* nothing to remove any more */
        bp_free(draft->temporary);
        draft->temporary = NULL;
        err = bp_path_sync_parent(draft->path);
    }
    return err;
}

void bp_h5_draft_end(bp_h5_draft *draft)
{
    bp_h5_drop(&draft->file);
    if (draft->temporary)
        (void)unlink(draft->temporary); /* there may be none */
    bp_free(draft->temporary);
    bp_free(draft->path);
    *draft = (bp_h5_draft){0};
}
