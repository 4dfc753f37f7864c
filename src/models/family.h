/* Families of models: what a name in model.kind means.
 *
 * A family is one table. Training, scoring, ensembles, jobs and tools know families only through
 * it, so that a new one is a folder beside this file, and a line in families.c
 * (docs/CONTRIBUTING.md has the recipe). */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/config/pairs.h"
#include "io/huggingface/hf_table.h"
#include "models/model.h"
#include "models/network/network.h"
#include "models/objective.h"
#include "models/shape/adapter.h"
#include "models/task/task_shape.h"
#include "nn/heads/distill.h"
#include "text/tokenizer/tokenizer.h"

/** model.*, adapter.*, head.* and the sections of families: the keys that several families share
 * (keys.c), and each family's own (bp_model_family.keys). Whole before main. */
#define BP_MODEL_KEYS_MOST 160
extern bp_option bp_model_options[BP_MODEL_KEYS_MOST];

/** The same for --help: `shared` gets what families share, `groups` each family's own keys; for a
 * `kind`, the name of a family, only that family's keys. NULL: all families. Borrowed. */
#define BP_MODEL_FAMILIES_MOST 64
void bp_model_help_keys(bp_option shared[BP_MODEL_KEYS_MOST],
                        bp_key_group groups[BP_MODEL_FAMILIES_MOST], const char *kind);

/** Values of bp_model_options, except sizes, which a shape has, and the families' own keys. */
typedef struct bp_model_keys {
    const char *kind;
    int64_t context;
    const char *rope_scaling;
    double dropout;
    const char *init;
    bp_adapter_keys adapter; /* adapter.*, of all families of Transformers */
} bp_model_keys;

static inline const bp_model_keys *bp_model_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_model_options);
}

/** Where an activation after a block belongs among a text's states: token k's is row `row` + k of
 * it, and goes into columns [column, column + its own) of a layer. */
typedef struct bp_state_part {
    int64_t layer, column, row;
} bp_state_part;

/** Blocks first to first + count - 1 of a network. */
typedef struct bp_block_run {
    int first, count;
} bp_block_run;

/** In the state of a checkpoint: true where its training began each document with the zero state.
 */
#define BP_STATE_RESTARTS "state_restarts"

typedef struct bp_model_family bp_model_family;
#define BP_MODEL_REALS 128 /* values of a list (BP_SIZE_REALS) */

/** Sizes of a stack of Transformer layers (models/stack/stack.h) that keys may set; 0: the family's
 * default. */
typedef struct bp_stack_sizes {
    int64_t kv_heads, head_width, inner, window, segments, first_position;
    int64_t no_positions; /* 1: no table of positions or segments */
    int64_t embedding; /* width of the embedding's tables, which a projection without bias makes as
                          wide as the model; 0: width */
    int64_t norms_after; /* 1: norms follow the branches where the family's precede them */
    int64_t other_tie;   /* 1: the head is tied where the family's is not, or not where it is */
    int64_t in_turn;     /* 1: attention and MLP of a parallel family follow each other */
    int64_t qkv_bias; /* 1: queries, keys and values have biases where other products have none */
    int64_t rope_scaling, rope_original; /* bp_rope_scaling; its original context */
    int64_t rope_width;                  /* rotary dimensions of a head; 0: by fraction */
    int64_t rope_untruncated;            /* 1: bp_rope.truncated is not set */
    int64_t score_width;                 /* scores are divided by its square root; 0: head_width */
    double epsilon;                      /* of norms */
    double score_cap, logit_cap;
    int64_t window_period, rope_period; /* bp_stack's */
    int64_t experts, chosen;            /* of layers with experts; experts per token */
    int64_t renormalised;               /* 1: bp_expert_shape.renormalised */
    int64_t expert_inner;               /* the inner width of an expert; 0: that of an MLP */
    int64_t sparse_step; /* in each group of this many layers only the last one has experts */
    double dense[BP_MODEL_REALS]; /* layers, from 1, without experts; 0 after the last one */
    double balance;               /* the weight of bp_expert_shape.balance; 0: no such loss */
    double clip;                  /* bp_layer_shape.clip; 0: no clipping */
    double embedding_scale, score_scale, branch_scale; /* multipliers; 0: the family's */
    double logit_divisor;                              /* 0: 1 */
    double rope_theta, rope_fraction, rope_factor, rope_low, rope_high;
    double rope_local_theta; /* of layers with a window, whose positions are not scaled; 0: as in
                                the others */
    double rope_beta_fast, rope_beta_slow, rope_attention_factor, rope_mscale, rope_mscale_all;
    double rope_short[BP_MODEL_REALS], rope_long[BP_MODEL_REALS]; /* 0 after the last one */
    int64_t unturned;          /* 1: no layer has rotary positions */
    int64_t relative_buckets;  /* rows of T5's table of distances between tokens; */
    int64_t relative_distance; /* distances from here on share the last one */
    int64_t relative_layers;   /* 1: each layer has a table of its own, as umT5's */
    int64_t other_activation;  /* 1: bp_stack.other_activation */
    int64_t state_heads, state_head_width, state, groups, taps; /* of state-space layers */
    double attention_layers[BP_MODEL_REALS]; /* numbers, from 1 on, of the layers of a hybrid stack
                                                that have attention; 0 after the last one */
} bp_stack_sizes;

/** The sizes of a model, from which its parameters' shapes follow. Plain data. */
#define BP_MODEL_OWN_BYTES 320
typedef struct bp_model_shape {
    int64_t layers, width, heads, context, vocab_size; /* L, C, H, T, V; 0: not known */
    int64_t positions; /* rows of a table of learned positions, at least T; 0: T */
    int64_t softmaxes; /* softmaxes that the head mixes: head.softmaxes; 1: a single one
                          (models/stack/variants.h) */
    int64_t head_entmax, attention_entmax; /* 1: head.activation, model.attention_activation are
                                              entmax15 */
    bp_stack_sizes stack;                  /* of families that are stacks */
    _Alignas(8) unsigned char own[BP_MODEL_OWN_BYTES]; /* its family's own sizes: BP_OWN_SIZES */
    const float *constants; /* what its family's `constants` made for initial values, borrowed;
                               NULL: nothing */
    const bp_model_family *family; /* NULL: not known */
    bp_task_shape task;            /* whose head takes the place of the family's */
    bool asks_no_pairs; /* for training: no next-sentence examples; the parameters used only for
                           them keep their values */
    bp_adapter adapter; /* then only it and a task's head are trained */
    bp_state_matches states;              /* for training: layers that learn from a teacher's */
    const struct bp_objective *objective; /* for training: NULL: its family's */
} bp_model_shape;

/** A size that the key model.NAME sets (SECTION.NAME, if its family has one), and that the "model"
 * object of a checkpoint keeps as NAME. */
typedef enum bp_size_type {
    BP_SIZE_COUNT,
    BP_SIZE_REAL,
    BP_SIZE_FLAG,
    BP_SIZE_CHOICE, /* a choice of words; the shape has the word's number */
    BP_SIZE_REALS,  /* a list "1,1.5" of numbers above 0: BP_MODEL_REALS doubles at its place, 0
                       after the last */
    BP_SIZE_PAIRS   /* a list "1:32,2:64", or "tanh:0,relu:1" with words: BP_MODEL_PAIRS numbers at
                       its place, each of them a pair (base/config/pairs.h), 0 after the last */
} bp_size_type;
typedef struct bp_model_size {
    const char *name;
    size_t at; /* BP_SIZE_AT(field) in bp_model_shape: of an int64_t, of a real a double */
    bp_size_type type;
    bool optional; /* optional, and may be missing in older checkpoints: then 0, until
                      bp_model_family.fill_defaults sets it */
    bool quiet;    /* not written where it equals the value of fill_defaults: older programs did not
                      know it */
    bool inverse;  /* an inverted flag, set by default: the shape has 1 where it is not set */
    bool of_training;    /* it may differ from the checkpoint that a model starts from */
    const char *section; /* section of its key, where that is not the family's */
    const char *words;   /* words of a choice, or of the first halves of pairs: "none|linear" */
    const char *stored;  /* its name in a checkpoint, where that is not NAME */
} bp_model_size;
#define BP_SIZE_AT(field) offsetof(bp_model_shape, field)
/** Sizes that only the models of one family have are a struct of its folder in bp_model_shape.own:
 * int64_t, doubles, and lists of them; 0 is the family's default. Defines TYPE_of(shape), and
 * TYPE_in(shape) to change them. */
#define BP_OWN_SIZES(type)                                                                         \
    _Static_assert(sizeof(type) <= BP_MODEL_OWN_BYTES, "BP_MODEL_OWN_BYTES");                      \
    static inline const type *type##_of(const bp_model_shape *shape)                               \
    {                                                                                              \
        return (const type *)(const void *)shape->own;                                             \
    }                                                                                              \
    static inline type *type##_in(bp_model_shape *shape)                                           \
    {                                                                                              \
        return (type *)(void *)shape->own;                                                         \
    }
/** The place of one of them, as BP_SIZE_AT. */
#define BP_OWN_AT(type, field) (offsetof(bp_model_shape, own) + offsetof(type, field))
#define BP_MODEL_PAIRS         16
/** For families with learned positions: windows of training may be shorter than the table. */
#define BP_POSITIONS_SIZE                                                                          \
    {                                                                                              \
        .name = "positions", .at = BP_SIZE_AT(positions), .optional = true, .quiet = true          \
    }

/** Figures derived from a shape. */
typedef struct bp_model_facts {
    int64_t parameters; /* for a model that is not a network; a network's blocks have them */
    double train_flops; /* of training on one token: forward and backward */
} bp_model_facts;

/** A network is a list of blocks, divided among pipeline stages: the first one takes the inputs,
 * the last one has the outcomes. */
#define BP_MODEL_COMMON 2
typedef struct bp_block_list {
    int (*count)(const bp_model_shape *shape);
    const char *are; /* for messages: "embedding, layers, head" */
    bool one_stage;  /* they share parameters, and stay together on a pipeline stage (but those
                        before the head of a task) */
    /** Approximate FLOPs of one token forward through a block: they decide where the pipeline is
     * cut. */
    double (*cost)(const bp_model_shape *shape, int block);
    /** The part that comes before the head of a task; NULL if the family takes no task's head.
     * Their activation is item 0, of the shape's width. */
    bp_backbone (*backbone)(const bp_model_shape *shape);
    /** What a block passes on: names, streams, columns. The last one passes nothing on. */
    bp_activations (*output)(const bp_model_shape *shape, int block);
    /** Make network->tables, which all blocks of the network read (tables of positions, of which
     * the first pass that reads rotary ones fills them); NULL: nothing. */
    void (*begin)(bp_network *network, const bp_model_shape *shape);
    /** A parameter that blocks of several stages hold (a tied embedding), for the stage that has
     * `blocks` blocks of its own; NULL where this stage does not hold it. A NULL function: there is
     * none. */
    bp_param *(*add_shared)(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks);
    /** Parameters that blocks of all stages share, a copy for the run of blocks that begins:
     * bp_network_add_common, at most BP_MODEL_COMMON. A NULL function: none. */
    void (*add_common)(bp_network *network, const bp_model_shape *shape, int stage);
    /** Block `number` of the model, at the end of the network; `shared` is add_shared's result. */
    void (*add)(bp_network *network, const bp_model_shape *shape, int number, bp_param *shared);
} bp_block_list;

/** An encoder-decoder, which reads a source. */
typedef struct bp_source_form {
    /** The token that targets begin with; -1: the end-of-document token. */
    int64_t (*start_token)(const bp_model_shape *shape);
    bool tags_follow; /* language tags: a source's may follow it, as the tokenizer's template says;
                         a target's then replaces the start token */
    /** The blocks that are layers: [0] of its decoder, [1] of its encoder. */
    void (*stacks)(const bp_model_shape *shape, bp_block_run of[2]);
} bp_source_form;

/** The states that layers keep of a token (bp_model_ops.states). */
typedef struct bp_layer_states {
    /** For a text between two end-of-document tokens. */
    bp_state_form (*form)(const bp_model_shape *shape);
    /** The part of the states that an activation after a block is; false if it is not a part. */
    bool (*part)(const bp_model_shape *shape, int block, const char *what, bp_state_part *out);
} bp_layer_states;

struct bp_model_family {
    const char *name;           /* in model.kind, and in checkpoints */
    const char *section;        /* section of its keys; NULL: "model" */
    const bp_model_size *sizes; /* ended by a NULL name; vocab_size is not one of them */
    const bp_option *keys; /* its own keys: sizes that are not in keys.c, or mean something else
                              here, and keys that are not sizes. Type and range are those of the
                              same key elsewhere. NULL: no such keys */
    const char *const *required; /* required keys of training, ended by NULL; NULL: those of
                                    training by gradients, train.steps (or epochs), train.batch */

    /* ---- what its models are: groups, NULL where they do not apply ---- */

    const bp_block_list *blocks;           /* a network */
    const struct bp_stack *stack;          /* data of Transformers of one stack (models/stack) */
    const struct bp_seq2seq_form *seq2seq; /* and of encoder-decoders (models/seq2seq) */
    const bp_source_form *source;          /* an encoder-decoder */
    const bp_layer_states *states;         /* layers whose states of a token can be kept */
    const struct bp_learner_ops
        *learner; /* not trained by passes through blocks (models/learner.h) */
    const struct bp_counting_ops *counting; /* counted, not trained (models/counting.h) */
    const struct bp_text_form *text_form;   /* another program's text file (models/forms.h) */
    const struct bp_folder_form *folder;    /* another program's folder (models/forms.h) */
    const bp_hf_table *const *huggingface;  /* what Hugging Face calls such models, ended by NULL */
    const bp_objective *objective;          /* that pretraining minimises: of networks, learners */
    const bp_objective *other_objective;    /* or this one: train.objective */

    /* ---- how its rows and windows are handled ---- */

    bool any_context; /* no parameter depends on a position: context may differ from a checkpoint's
                       */
    bool unlimited;   /* windows may have any number of inputs, also in scoring, and may come in
                         pieces: context is only that of training. Blocks carry state from one piece
                         to the next (bp_network_add_carry). Rows need those before them: no sequence
                         parallelism */
    bool in_order;    /* a row needs those before it by other means than attention: no sequence
                         parallelism */
    bool whole_rows;  /* in training, other rows need a row: no sequence parallelism */
    bool carries_state; /* state is carried in training too, from window to window of a batch slot:
                           windows are read in order; no sequence parallelism */
    bool restarts;      /* that state can begin anew where a document does, within a window
                           (bp_pass.restart) */
    bool benched; /* `bagpipe bench` measures a machine by training and scoring its models, or by
                     counting one */

    /* ---- its shape ---- */

    /** Fill in optional values that were not given, in a shape that is otherwise complete; NULL if
     * it has none. */
    void (*fill_defaults)(bp_model_shape *shape);
    /** Set keys of training that were not given, if the defaults of networks don't fit, and add
     * faults of keys that were given and do not fit; may be NULL. */
    void (*resolve)(const bp_model_shape *shape, bp_config *config);
    /** Faults of a shape whose sizes are all given, on this many tensor ranks, with values that
     * would fit. */
    void (*check)(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
    /** The same check of a checkpoint's shape by itself. Errors: BP_ERR_FORMAT. */
    bp_err (*check_read)(const bp_model_shape *shape, const char *where);
    bp_model_facts (*facts)(const bp_model_shape *shape);
    /** Columns of the state before the vocabulary (bp_model_info.width); NULL: the width. */
    int64_t (*state_width)(const bp_model_shape *shape);
    /** Of a model that reads only the last order - 1 tokens, its order (bp_model_info.order); NULL:
     * it reads all. */
    int64_t (*order)(const bp_model_shape *shape);
    /** The reason why a shape cannot score texts; NULL if it can. A NULL function: all can. */
    const char *(*no_distribution)(const bp_model_shape *shape);
    /** Is there a next-sentence head? A NULL function: no. */
    bool (*has_pairs_head)(const bp_model_shape *shape);
    /** The block of the last Transformer layer of a model that continues texts or fills them in (of
     * the decoder, if there is one): the input of its MLP is the key of the predicted token
     * (bp_model_ops.keys). NULL if there is none. */
    int (*key_block)(const bp_model_shape *shape);
    /** What a new model's initial values need from the tokenizer (NULL: unknown): *out is the
     * caller's, bp_free(), of *floats floats, for shape->constants. Local, on the coordinator.
     * Errors: BP_ERR_CONFIG an unsuitable tokenizer, or none; BP_ERR_SYSTEM. A NULL function:
     * nothing. */
    bp_err (*constants)(float **out, int64_t *floats, const bp_model_shape *shape,
                        const bp_tokenizer *tokenizer);
    /** For a model that is exported as several of Hugging Face's folders: the "model" object (new
     * reference) by which the k-th is written, and its name; NULL: there is no k-th; if there is no
     * first either, the model is one folder. A NULL function: always one folder. */
    json_t *(*half)(const bp_model_shape *shape, int k, const char **name);
};

/** Do its networks have a part before the head that a task's head can follow? */
static inline bool bp_family_has_backbone(const bp_model_family *family)
{
    return family->blocks && family->blocks->backbone;
}

/** For a family of Transformers that is not a stack (models/stack/stack.h), as a program may bring
 * one: layers, width, heads, context; heads divide the width, and tensor ranks the heads. */
extern const bp_model_size bp_transformer_sizes[];
void bp_transformer_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
bp_err bp_transformer_check_read(const bp_model_shape *shape, const char *where);

/** The family that `bagpipe bench` measures: a network, or one whose models are counted. */
const bp_model_family *bp_model_family_benched(bool counted);
/** The family of this name; NULL if there is none. */
const bp_model_family *bp_model_family_find(const char *name);
/** The tables of all families, ended by NULL: for bp_hf_open and bp_hf_export. */
const bp_hf_table *const *bp_model_huggingface_tables(void);
/** The family whose model the text file `path` holds (bp_text_form.is); NULL if there is none. */
const bp_model_family *bp_model_family_of_text(const char *path);
/** The same for the folder of another program (bp_folder_form.is). */
const bp_model_family *bp_model_family_of_folder(const char *path);
/** Add a family, for a program that brings its own. Before any configuration is read; borrowed. */
void bp_model_family_register(const bp_model_family *family);

/** Faults for keys of training that the family of model.kind requires and that are not set: in a
 * job that trains, for bp_config_require_by. */
void bp_model_require_keys(bp_config *config);

/** The shape that the configuration asks for, on top of `known` (from a checkpoint; may be NULL).
 * Faults (an unknown kind, a missing key, a key that contradicts the checkpoint) are added to the
 * configuration's. vocab_size stays what `known` has, else 0. */
bp_model_shape bp_model_shape_of(bp_config *config, const bp_model_shape *known);
/** Are all sizes given, except perhaps the vocabulary's? */
bool bp_model_shape_is_whole(const bp_model_shape *shape);
/** Set model.* to the shape's values, so that config.ini has them. */
void bp_model_shape_resolve(const bp_model_shape *shape, bp_config *config);

/** Faults of a shape on this many tensor ranks and stages, with values that would fit: added to the
 * configuration's. An incomplete shape has none: a missing key is a fault already. */
void bp_model_shape_check(const bp_model_shape *shape, int tensor_ranks, int stages,
                          bp_config *config);

/** The "model" object of a checkpoint's state. Errors of reading: BP_ERR_FORMAT a kind, an invalid
 * key or value. */
json_t *bp_model_shape_json(const bp_model_shape *shape);
bp_err bp_model_shape_read(bp_model_shape *shape, const json_t *state, const char *where);

/** Do its parameter groups know how many layers are above them (bp_group.depth)? False if two
 * stacks of layers train together. */
bool bp_model_has_depth(const bp_model_shape *shape);
/** The block whose output is the state of a layer, from 0 (before the first one) to shape->layers:
 * for a model that has depth. */
int bp_model_state_block(const bp_model_shape *shape, int64_t layer);
int64_t bp_model_state_width(const bp_model_shape *shape);
/** Rows of a table of learned positions. */
static inline int64_t bp_model_positions(const bp_model_shape *shape)
{
    return shape->positions > 0 ? shape->positions : shape->context;
}
/** May windows have this many inputs, unlike the context? True if no parameter belongs to a
 * position, or the table of positions has a row for each. */
bool bp_model_may_read(const bp_model_shape *shape, int64_t inputs);
/** The most inputs that a window may have outside training: the context, or BP_MODEL_UNLIMITED. */
int64_t bp_model_most_inputs(const bp_model_shape *shape);
/** Parameters of the whole model, tied ones counted once, without those of an adapter; and those
 * that training changes. Counted from its blocks: the shape is complete and has no faults
 * (bp_model_shape_check). */
int64_t bp_model_parameters(const bp_model_shape *shape);
int64_t bp_model_trained_parameters(const bp_model_shape *shape);
/** Refuse a LoRA on weights that no layer of the model has outside of its experts. The shape has no
 * faults (bp_model_shape_check). Errors: BP_ERR_CONFIG. Local. */
bp_err bp_model_check_targets(const bp_model_shape *shape);
/** The parameters that one token goes through: all but those of the experts not chosen. */
int64_t bp_model_active_parameters(const bp_model_shape *shape);
double bp_model_train_flops(const bp_model_shape *shape);

/** The training objective: that of its task, or its family's; NULL: a family of counts, or a
 * learner. */
const bp_objective *bp_model_objective(const bp_model_shape *shape);
/** The weight of a term's loss in it: the objective's, or training's own. */
double bp_model_term_weight(const bp_model_shape *shape, int term);
/** The number of its outcomes or values: its task's outcomes, or words. And whether its last block
 * is a softmax over them (values and spans have other heads). */
int64_t bp_model_outcomes(const bp_model_shape *shape);
bool bp_model_is_softmax(const bp_model_shape *shape);
/** The weight of the balance loss of its experts (nn/core/layers.h) in training; 0 if there is
 * none. And the number of experts of a layer; 0 if it has none. */
double bp_model_balance(const bp_model_shape *shape);
int64_t bp_model_experts(const bp_model_shape *shape);
/** Faults if `ranks` > 1 data ranks can't share the experts evenly, or have none to share. */
void bp_model_check_experts(const bp_model_shape *shape, int ranks, bp_config *config);
/** Does a cap go over the logits of words (bp_head_shape.cap)? */
bool bp_model_caps_logits(const bp_model_shape *shape);
/** FLOPs of a block of the whole network, with a task's head in place of the family's. And those of
 * a token in the experts of a block, which are a part of these; 0 if it has none. */
double bp_model_block_cost(const bp_model_shape *shape, int block);
double bp_model_expert_cost(const bp_model_shape *shape, int block);
bp_activations bp_model_block_output(const bp_model_shape *shape, int block);
/** Number of blocks of the whole network; 0 if the shape is incomplete. */
int bp_model_blocks(const bp_model_shape *shape);
/** Stage `stage` of `stages` has blocks [*first, *end): the cut that minimises the most expensive
 * stage. */
void bp_model_stage(const bp_model_shape *shape, int stage, int stages, int *first, int *end);

/** The place of a run of blocks in a pipeline whose stages have several each. */
typedef struct bp_model_place {
    int stage, stages, chunk, chunks;
} bp_model_place;
/** Run chunk * stages + stage of the model is blocks [*first, *end): a stage's inner blocks (all
 * but the first and the last) are as many as in bp_model_stage's cut, distributed evenly over its
 * chunks. Where that would leave a chunk empty: the cheapest cut into chunks * stages. */
void bp_model_chunk(const bp_model_shape *shape, const bp_model_place *at, int *first, int *end);

/** The part of the model that one rank holds; values are not bound yet. nn->tensor may be
 * MPI_COMM_NULL for planning. Local. Owns: *out is the caller's, bp_network_free(). Errors:
 * BP_ERR_SYSTEM. */
bp_err bp_model_network_new(bp_network **out, const bp_nn *nn, const bp_model_shape *shape,
                            int stage, int stages);
/** The same where each stage has `chunks` runs of blocks (bp_model_chunk), more than one only with
 * more than one stage. */
bp_err bp_model_network_new_chunks(bp_network **out, const bp_nn *nn, const bp_model_shape *shape,
                                   int stage, int stages, int chunks);
