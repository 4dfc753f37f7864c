/* HDF5 files that are complete or absent: written under another name, sealed, renamed. */
#include "io/h5/h5.h"

#include "io/h5/user_block.h"

#include <stdio.h>

bp_err bp_h5_draft_begin(bp_h5_draft *draft, const char *path, int version)
{
    bp_err err;

    draft->file = NULL;
    err = bp_draft_open(&draft->place, path);
    if (err == BP_OK)
        err = bp_h5_create_as(&draft->file, draft->place.temporary, path);
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
        err = bp_user_block_seal(&block, draft->place.temporary);
    return err == BP_OK ? bp_draft_commit(&draft->place) : err;
}

void bp_h5_draft_end(bp_h5_draft *draft)
{
    bp_h5_drop(&draft->file);
    bp_draft_drop(&draft->place);
}
