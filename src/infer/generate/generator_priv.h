/* A generation job while it runs. */
#ifndef BP_INFER_GENERATE_GENERATOR_PRIV_H
#define BP_INFER_GENERATE_GENERATOR_PRIV_H

#include "infer/ensemble/ensemble.h"
#include "infer/generate/keys.h"
#include "infer/generate/prompts.h"
#include "infer/generate/search.h"
#include "infer/generate/units.h"
#include "infer/score/tables/parts.h"
#include "models/model.h"
#include "run/run_folder.h"

typedef struct generator {
    bp_config *config; /* borrowed */
    bool ensemble;     /* on all ranks */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bool leads;                       /* this rank leads a mesh->ensemble: it writes parts */
    bp_model *lm;                     /* NULL on a dedicated coordinator */
    bp_model_info info;               /* on all ranks (`kind` on the computing ones) */
    bp_tokenizer *tokenizer;          /* on all ranks; NULL: there is none */
    bp_stops stops;                   /* on all ranks */
    bp_search_spec rule;              /* on all ranks */
    bp_prompts prompts;               /* on all ranks; texts on the coordinator alone */
    char prompts_hash[BP_SHA256_HEX]; /* on all ranks */
    bp_generate_plan plan;            /* on all ranks */
    bp_run *run;
    char *folder; /* RUN/generate */
    char *parts_folder;
    char key[BP_SHA256_HEX]; /* names the work in part files */
    json_t *summary;         /* on the coordinator, at the end */
    bool page;               /* was written */
} generator;

/** The rule of generate.*; stops are not in it yet. Local. */
bp_search_spec generator_rule(const bp_config *config, const bp_model_info *model);
/** The token that is put before prompts; -1: none. */
int64_t generator_first(const bp_config *config, const bp_model_info *model);
/** Errors: BP_ERR_CONFIG what does not fit the model. Local. */
bp_err generator_check_rule(const bp_config *config, const bp_model_info *model);

/** Mesh, memory, model, tokenizer, prompts and plan. Collective over `world`. Close after an error
 * too. Errors: bp_generate's. */
bp_err generator_open(generator *self, MPI_Comm world, bp_config *config);
void generator_close(generator *self);
/** Its parts: the mesh (plan: one rank stands for any mesh, of a job to come; NULL: this one), and
 * the rest, without a look at memory. */
bp_err generator_open_mesh(generator *self, MPI_Comm world, bp_config *config,
                           const bp_planned_world *plan);
bp_err generator_open_model(generator *self);

/** Continue the prompts that are missing. Collective over world. Errors: the same on all ranks;
 *  BP_ERR_STOPPED where some are still missing. */
bp_err generator_run_units(generator *self);

/** What the coordinator writes at the end: local. */
bp_err generator_write_outputs(generator *self, bp_parts *parts);
/** index.html, of outputs.jsonl. */
bp_err generator_write_page(const generator *self);

#endif
