/* A disk for simulations: folders, files with a number for content, and what of it would still be
 * there after a power cut. What was not brought to disk may be lost, in any order; what was, stays.
 * Local; no real file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DISK_ENTRIES 512
#define DISK_INODES  8192
#define DISK_OPS     4096
#define DISK_TORN    (-1) /* content that is half there */

/* Randomness of one history: splitmix64 (Steele, Lea and Flood 2014). */
typedef struct sim_random {
    uint64_t state;
} sim_random;
uint64_t sim_u64(sim_random *random);
int64_t sim_below(sim_random *random, int64_t n);
double sim_uniform(sim_random *random, double from, double to);
bool sim_chance(sim_random *random, double probability);

/* "KIND-NUMBER-TOKEN" */
typedef enum name_kind {
    NAME_OWNER = 1,
    NAME_HEARTBEAT,
    NAME_CLAIM,
    NAME_STEP,
    NAME_TMP,
    NAME_DEL,
    NAME_SHARD,
    NAME_MANIFEST
} name_kind;
typedef int64_t sim_name;
sim_name name_of(name_kind kind, int64_t number, int64_t token);
name_kind name_kind_of(sim_name name);
int64_t name_number(sim_name name);
int64_t name_token(sim_name name);

typedef struct disk_entry {
    int folder, inode;
    sim_name name;
} disk_entry;

typedef struct disk_inode {
    int64_t content, durable;
    int writer; /* the host that wrote it last */
    bool dirty;
} disk_inode;

/* A change of a folder that may not be on disk yet; -1: no such inode. */
typedef struct disk_op {
    int folder, inode;
    sim_name removed, added; /* 0: none */
} disk_op;

typedef struct sim_disk {
    disk_entry live[DISK_ENTRIES], durable[DISK_ENTRIES];
    int live_count, durable_count;
    disk_inode inodes[DISK_INODES];
    int inode_count;
    disk_op ops[DISK_OPS];
    int op_count;
} sim_disk;

/* Folders that are always there. */
enum { FOLDER_LOCK, FOLDER_STEPS, FOLDERS };

void disk_init(sim_disk *disk);
int disk_find(const sim_disk *disk, int folder, sim_name name); /* an inode; -1: none */
int disk_list(const sim_disk *disk, int folder, sim_name *names, int capacity);
/** False where the name is taken. */
bool disk_add(sim_disk *disk, int folder, sim_name name, int inode);
int disk_new(sim_disk *disk, int64_t content, int host);
bool disk_remove(sim_disk *disk, int folder, sim_name name);
/** Within a folder. False where there is no `from`, or `to` is taken and not to be replaced. */
bool disk_rename(sim_disk *disk, int folder, sim_name from, sim_name to, bool replaces);
void disk_write(sim_disk *disk, int inode, int64_t content, int host);
void disk_sync_file(sim_disk *disk, int inode);
void disk_sync_folder(sim_disk *disk, int folder);
/** Power is lost: of what was not brought to disk some is there, some is not. */
void disk_cut(sim_disk *disk, sim_random *random);
/** A host that writes over the network dies: the same with the files that it wrote. */
void disk_host_dies(sim_disk *disk, int host, sim_random *random);
