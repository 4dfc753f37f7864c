/* The walk over a whole file: every link, every object, every attribute. */
#include "store/h5_inspect.h"

#include "h5_priv.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_LIMIT     8
#define VALUES_LIMIT    ((hsize_t)1 << 40)
#define ATTRIBUTE_LIMIT 4096
#define NAME_BYTES      512

int64_t bp_h5_link_limit = 1000000;

/* Where the walk is. */
typedef struct walk {
    bp_h5 *file;
    haddr_t above[DEPTH_LIMIT + 1]; /* the groups on the way here, the root first */
    int depth;
    int64_t links;
    char name[NAME_BYTES]; /* of the object looked at; long ones are cut */
    bp_err err;
} walk;

static bp_err refuse(walk *at, const char *what)
{
    at->err = BP_FAIL(BP_ERR_FORMAT,
                      "%s %s: at %s; copy /tokens, /doc_start and vocab_size into a new file",
                      at->name[0] != '\0' ? at->name : "the file", what, at->file->path);
    return at->err;
}

/* ---- what is claimed ---- */

/* The product is never formed before it is known to fit. */
static bp_err look_at_space(walk *at, hid_t space, hsize_t limit)
{
    hsize_t extent[H5S_MAX_RANK], values = 1;
    int dims = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;

    if (dims < 0 || dims > H5S_MAX_RANK || H5Sget_simple_extent_dims(space, extent, NULL) < 0)
        return at->err = bp_h5_fail(at->file, "can't read the shape of", at->name);
    for (int d = 0; d < dims; d++)
        if (extent[d] > limit || __builtin_mul_overflow(values, extent[d], &values) ||
            values > limit)
            return refuse(at, "claims an absurd number of values");
    return BP_OK;
}

/* ---- attributes ---- */

static herr_t look_at_attribute(hid_t object, const char *name, const H5A_info_t *info,
                                void *context)
{
    walk *at = context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;

    (void)info;
    (void)look_at_space(at, space, 1 << 20);
    if (space >= 0)
        H5Sclose(space);
    if (attribute >= 0)
        H5Aclose(attribute);
    return at->err == BP_OK ? 0 : 1;
}

static bp_err look_at_attributes(walk *at, hid_t object, hsize_t count)
{
    hsize_t position = 0;

    if (count > ATTRIBUTE_LIMIT)
        return refuse(at, "has more than 4096 attributes");
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &position, look_at_attribute, at) < 0 &&
        at->err == BP_OK)
        at->err = bp_h5_fail(at->file, "can't read the attributes of", at->name);
    return at->err;
}

/* ---- datasets ---- */

/* Of any type, and with any filter: bp_h5_walk is stricter with those that are read. */
static bp_err look_at_dataset(walk *at, hid_t dataset)
{
    hid_t type = H5Dget_type(dataset);
    hid_t space = H5Dget_space(dataset);
    hid_t creation = H5Dget_create_plist(dataset);

    if (type < 0)
        at->err = bp_h5_fail(at->file, "can't read the type of", at->name);
    else if (look_at_space(at, space, VALUES_LIMIT) == BP_OK) {
        if (creation < 0)
            at->err = bp_h5_fail(at->file, "can't read the properties of", at->name);
        else
            at->err = bp_h5_walk_storage(at->file, at->name, creation, H5Tget_size(type));
    }
    if (creation >= 0)
        H5Pclose(creation);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return at->err;
}

/* ---- groups ---- */

static bp_err look_at_group(walk *at, hid_t group, haddr_t address);

static bp_err look_at_object(walk *at, hid_t object)
{
    H5O_info_t info;

    if (H5Oget_info2(object, &info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS) < 0)
        return at->err = bp_h5_fail(at->file, "can't read", at->name);
    if (look_at_attributes(at, object, info.num_attrs) != BP_OK)
        return at->err;
    switch (info.type) {
    case H5O_TYPE_GROUP:
        return look_at_group(at, object, info.addr);
    case H5O_TYPE_DATASET:
        return look_at_dataset(at, object);
    case H5O_TYPE_NAMED_DATATYPE:
        return BP_OK;
    default:
        return refuse(at, "is neither a dataset nor a group nor a type");
    }
}

static void enter_name(walk *at, size_t length, const char *name)
{
    (void)snprintf(at->name + length, sizeof at->name - length, "%s%s", length > 0 ? "/" : "",
                   name);
}

/* Do our readers look for this name? A soft link there would be passed over, as if there were
 * nothing. */
static bool is_looked_for(const char *name)
{
    static const char *const names[] = {"tokens",    "doc_start",       "doc_bytes",
                                        "doc_words", "doc_words_split", "doc_id",
                                        "source",    "source/tokenizer"};
    static const char *const groups[] = {"labels", "label_names"};

    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(name, names[k]) == 0)
            return true;
    for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
        size_t bytes = strlen(groups[k]);
        if (strncmp(name, groups[k], bytes) == 0 && (name[bytes] == '\0' || name[bytes] == '/'))
            return true;
    }
    return false;
}

static bool may_stand(const walk *at, H5L_type_t type)
{
    return type == H5L_TYPE_HARD || (type == H5L_TYPE_SOFT && !is_looked_for(at->name));
}

static bp_err look_behind(walk *at, hid_t group, const char *name)
{
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);

    if (object < 0)
        return at->err = bp_h5_fail(at->file, "can't open", at->name);
    (void)look_at_object(at, object);
    H5Oclose(object);
    return at->err;
}

/* Soft links are not followed, here nor by a reader. */
static herr_t look_at_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    walk *at = context;
    size_t length = strlen(at->name);

    if (++at->links > bp_h5_link_limit)
        return refuse(at, "holds more than a million links"), 1;
    enter_name(at, length, name);
    if (!may_stand(at, info->type))
        (void)refuse(at, info->type == H5L_TYPE_SOFT       ? "is a soft link"
                         : info->type == H5L_TYPE_EXTERNAL ? "is an external link"
                                                           : "is a link of an unknown kind");
    else if (info->type == H5L_TYPE_HARD)
        (void)look_behind(at, group, name);
    at->name[length] = '\0';
    return at->err == BP_OK ? 0 : 1;
}

/* Hard links may lead back up: what is inside itself has no end. */
static bp_err look_at_group(walk *at, hid_t group, haddr_t address)
{
    for (int k = 0; k < at->depth; k++)
        if (at->above[k] == address)
            return refuse(at, "is a group inside itself");
    if (at->depth > DEPTH_LIMIT)
        return refuse(at, "lies in more than 8 groups");
    at->above[at->depth++] = address;
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, look_at_link, at) < 0 &&
        at->err == BP_OK)
        at->err = bp_h5_fail(at->file, "can't list group", at->name);
    at->depth--;
    return at->err;
}

static bp_err look_at_file(walk *at)
{
    hid_t creation = H5Fget_create_plist(at->file->id);
    hid_t root = H5Gopen2(at->file->id, "/", H5P_DEFAULT);
    hsize_t user_block = 0;

    if (creation < 0 || root < 0 || H5Pget_userblock(creation, &user_block) < 0)
        at->err = bp_h5_fail(at->file, "can't read the root of", NULL);
    else if (user_block != 0)
        (void)refuse(at, "has a user block that is not ours");
    else
        (void)look_at_object(at, root);
    if (root >= 0)
        H5Gclose(root);
    if (creation >= 0)
        H5Pclose(creation);
    return at->err;
}

bp_err bp_h5_inspect(bp_h5 *file)
{
    walk *at = bp_alloc("store.inspect", 1, sizeof *at);
    bp_err err;

    if (at == NULL)
        return bp_fail_memory("the walk over a file", 1, sizeof *at);
    at->file = file;
    bp_h5_lock();
    err = look_at_file(at);
    bp_h5_forget();
    bp_h5_unlock();
    bp_free(at);
    return err;
}
