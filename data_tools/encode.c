/* bagpipe-data encode: the tokens of texts, one per row. */
#include "arguments.h"
#include "base/buffer.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "output.h"
#include "table/token_table.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"tokenizer", 't', "FILE", 0, "a tokenizer.json (required)", 0},
    {"special", 0, NULL, 0,
     "names of special tokens in the texts become those tokens; without it they are text", 0},
    {0}};

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "the tokenizer is wrong or damaged"},
                                       {"66", "it is missing"},
                                       {0}};

typedef struct encoding {
    bp_tokenizer *tokenizer;
    bp_encoder *encoder;
    bp_ids ids;      /* of the text at hand */
    bp_buffer piece; /* of a token */
    int64_t texts;   /* so far */
} encoding;

static bp_err put_text(encoding *self, const char *text, size_t bytes)
{
    bp_err err;

    self->texts++;
    self->ids.count = 0;
    err = bp_encode(self->encoder, text, bytes, &self->ids);
    for (int64_t k = 0; k < self->ids.count && err == BP_OK; k++) {
        self->piece.bytes = 0;
        err = add_token_text(&self->piece, self->tokenizer, self->ids.data[k]);
        if (err == BP_OK)
            printf("%" PRId64 ",%" PRIu32 ",%.*s\n", self->texts, self->ids.data[k],
                   (int)self->piece.bytes, self->piece.data);
    }
    return err;
}

/* One text per line. */
static bp_err put_lines(encoding *self)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    bp_err err = BP_OK;

    while (err == BP_OK && (bytes = getline(&line, &capacity, stdin)) >= 0)
        err =
            put_text(self, line, (size_t)bytes - (bytes > 0 && line[bytes - 1] == '\n' ? 1U : 0U));
    if (err == BP_OK && ferror(stdin))
        err = bp_fail_errno(BP_ERR_IO, "can't read", "standard input");
    free(line);
    return err;
}

static bp_err put_all(const char *tokenizer, bool specials, const tool_files *texts)
{
    encoding self = {0};
    bp_err err = bp_tokenizer_load(&self.tokenizer, tokenizer);

    if (err == BP_OK)
        err = bp_encoder_new(&self.encoder, self.tokenizer);
    if (err == BP_OK) {
        bp_encoder_find_specials(self.encoder, specials);
        printf("text,id,piece\n");
    }
    for (int k = 0; k < texts->count && err == BP_OK; k++)
        err = strcmp(texts->list[k], "-") == 0
                  ? put_lines(&self)
                  : put_text(&self, texts->list[k], strlen(texts->list[k]));
    bp_buffer_clear(&self.piece);
    bp_ids_clear(&self.ids);
    bp_encoder_free(&self.encoder);
    bp_tokenizer_free(&self.tokenizer);
    return err;
}

static bp_err run(int argc, char **argv)
{
    const char *tokenizer = NULL;
    bool specials = false;
    const tool_value values[] = {
        {.option = "tokenizer", .text = &tokenizer}, {.option = "special", .flag = &specials}, {0}};
    tool_files texts;
    bp_err err = tool_parse(&bp_tool_encode, values, &texts, argc, argv);

    if (err == BP_OK && (!tokenizer || texts.count == 0))
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input", "there is no %s: at the command line; %s",
                      tokenizer ? "text" : "tokenizer",
                      tokenizer ? "give a TEXT, or - for lines of standard input"
                                : "name a tokenizer.json with --tokenizer");
    if (err == BP_OK)
        err = bp_stdin_check(texts.list, texts.count);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = put_all(tokenizer, specials, &texts);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_encode = {
    .name = "encode",
    .help = {.name = "bagpipe-data encode",
             .usage = "--tokenizer FILE [--special] TEXT...\n--tokenizer FILE [--special] -",
             .summary = "prints the tokens of texts",
             .text =
                 "It prints CSV, a row a token: the number of the text, from 1, the token's id, "
                 "and the token's text, in which \\n, \\t, \\r and \\xNN mean other characters, "
                 "and \\\\ a backslash. - is standard "
                 "input, each line a text. Texts are encoded as bagpipe-data corpus does: names of "
                 "special tokens are text (but with --special), and no special token is added.",
             .options = OPTIONS,
             .examples = "  bagpipe-data encode --tokenizer tokenizer.json \"The ship sails.\"\n"
                         "  bagpipe-data encode --tokenizer tokenizer.json - < texts.txt\n",
             .statuses = STATUSES},
    .run = run};
