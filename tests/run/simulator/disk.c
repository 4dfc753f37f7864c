#include "disk.h"

#include "base/err.h"

#include <string.h>

/* ---- randomness ---- */

uint64_t sim_u64(sim_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t sim_below(sim_random *random, int64_t n)
{
    return (int64_t)(sim_u64(random) % (uint64_t)n);
}

double sim_uniform(sim_random *random, double from, double to)
{
    return from + (to - from) * (double)(sim_u64(random) >> 11) * 0x1p-53;
}

bool sim_chance(sim_random *random, double probability)
{
    return sim_uniform(random, 0, 1) < probability;
}

/* ---- names ---- */

sim_name name_of(name_kind kind, int64_t number, int64_t token)
{
    BP_ASSERT(number >= 0 && number < 1 << 20 && token >= 0 && token < 1 << 20);
    return ((int64_t)kind << 40) | (number << 20) | token;
}

name_kind name_kind_of(sim_name name)
{
    return (name_kind)(name >> 40);
}

int64_t name_number(sim_name name)
{
    return (name >> 20) & ((1 << 20) - 1);
}

int64_t name_token(sim_name name)
{
    return name & ((1 << 20) - 1);
}

/* ---- what is seen now ---- */

void disk_init(sim_disk *disk)
{
    disk->live_count = disk->durable_count = disk->op_count = 0;
    disk->inode_count = FOLDERS;
    memset(disk->inodes, 0, FOLDERS * sizeof disk->inodes[0]);
}

static int place_of(const disk_entry *entries, int count, int folder, sim_name name)
{
    for (int k = 0; k < count; k++)
        if (entries[k].folder == folder && entries[k].name == name)
            return k;
    return -1;
}

int disk_find(const sim_disk *disk, int folder, sim_name name)
{
    int k = place_of(disk->live, disk->live_count, folder, name);

    return k < 0 ? -1 : disk->live[k].inode;
}

int disk_list(const sim_disk *disk, int folder, sim_name *names, int capacity)
{
    int count = 0;

    for (int k = 0; k < disk->live_count; k++)
        if (disk->live[k].folder == folder) {
            BP_ASSERT(count < capacity);
            names[count++] = disk->live[k].name;
        }
    return count;
}

int disk_new(sim_disk *disk, int64_t content, int host)
{
    BP_ASSERT(disk->inode_count < DISK_INODES);
    disk->inodes[disk->inode_count] =
        (disk_inode){.content = content, .durable = DISK_TORN, .writer = host, .dirty = true};
    return disk->inode_count++;
}

void disk_write(sim_disk *disk, int inode, int64_t content, int host)
{
    disk->inodes[inode].content = content;
    disk->inodes[inode].writer = host;
    disk->inodes[inode].dirty = true;
}

/* ---- changes of folders: seen at once, on disk later ---- */

static void apply(disk_entry *entries, int *count, const disk_op *op)
{
    int gone = op->removed != 0 ? place_of(entries, *count, op->folder, op->removed) : -1;

    if (op->removed != 0 && gone < 0 && op->added == 0)
        return;
    if (gone >= 0)
        entries[gone] = entries[--*count];
    if (op->added == 0)
        return;
    gone = place_of(entries, *count, op->folder, op->added); /* replaced */
    if (gone >= 0)
        entries[gone] = entries[--*count];
    BP_ASSERT(*count < DISK_ENTRIES);
    entries[(*count)++] = (disk_entry){op->folder, op->inode, op->added};
}

static void change(sim_disk *disk, disk_op op)
{
    BP_ASSERT(disk->op_count < DISK_OPS);
    apply(disk->live, &disk->live_count, &op);
    disk->ops[disk->op_count++] = op;
}

bool disk_add(sim_disk *disk, int folder, sim_name name, int inode)
{
    if (disk_find(disk, folder, name) >= 0)
        return false;
    change(disk, (disk_op){.folder = folder, .inode = inode, .added = name});
    return true;
}

bool disk_remove(sim_disk *disk, int folder, sim_name name)
{
    if (disk_find(disk, folder, name) < 0)
        return false;
    change(disk, (disk_op){.folder = folder, .inode = -1, .removed = name});
    return true;
}

bool disk_rename(sim_disk *disk, int folder, sim_name from, sim_name to, bool replaces)
{
    int inode = disk_find(disk, folder, from);

    if (inode < 0 || (!replaces && disk_find(disk, folder, to) >= 0))
        return false;
    change(disk, (disk_op){.folder = folder, .inode = inode, .removed = from, .added = to});
    return true;
}

void disk_sync_file(sim_disk *disk, int inode)
{
    disk->inodes[inode].durable = disk->inodes[inode].content;
    disk->inodes[inode].dirty = false;
}

void disk_sync_folder(sim_disk *disk, int folder)
{
    int left = 0;

    for (int k = 0; k < disk->op_count; k++) {
        if (disk->ops[k].folder == folder)
            apply(disk->durable, &disk->durable_count, &disk->ops[k]);
        else
            disk->ops[left++] = disk->ops[k];
    }
    disk->op_count = left;
}

/* ---- losing ---- */

static void lose_content(disk_inode *inode, sim_random *random)
{
    int64_t fates[] = {inode->durable, inode->content, DISK_TORN};

    if (!inode->dirty)
        return;
    inode->content = inode->durable = fates[sim_below(random, 3)];
    inode->dirty = false;
}

void disk_cut(sim_disk *disk, sim_random *random)
{
    double kept = sim_uniform(random, 0, 1); /* few, half, or nearly all of the changes */

    for (int k = 0; k < disk->op_count; k++)
        if (sim_chance(random, kept))
            apply(disk->durable, &disk->durable_count, &disk->ops[k]);
    disk->op_count = 0;
    memcpy(disk->live, disk->durable, (size_t)disk->durable_count * sizeof disk->live[0]);
    disk->live_count = disk->durable_count;
    for (int k = FOLDERS; k < disk->inode_count; k++)
        lose_content(&disk->inodes[k], random);
}

void disk_host_dies(sim_disk *disk, int host, sim_random *random)
{
    for (int k = FOLDERS; k < disk->inode_count; k++)
        if (disk->inodes[k].writer == host)
            lose_content(&disk->inodes[k], random);
}
