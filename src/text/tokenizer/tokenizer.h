/* Tokenizers: BPE, Unigram, WordPiece, words and characters. tokenizer.json in the Hugging Face
 * form.
 *
 * Invalid UTF-8 is taken one byte at a time: a byte at which no valid sequence starts is a
 * character of its own, and not White_Space.
 *
 *     bpe    it is a piece of its own (the token of its byte), and the valid stretches around it
 *            are encoded each on its own
 *     word   it belongs to its word, which becomes <unk>, since JSON can't spell it
 *     char   it becomes <unk>
 *
 * Tokenizers with normalizers or other pre-tokenizers see such a byte as a character that is not
 * assigned, so that a text is normalized and cut once. The model takes it as an unknown character:
 * the token of its byte, the unknown token, or nothing.
 *
 * A tokenizer may be shared by threads; it is not changed once loaded. Local: no MPI.
 */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"
#include "base/files/hash.h"
#include "text/pipeline/ids.h"
#include "text/unicode/cut.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_EOD_TOKEN "<|endoftext|>"
#define BP_UNK_TOKEN "<unk>"

typedef struct bp_tokenizer bp_tokenizer;

/** Load tokenizer.json.
 *
 * Read exactly, or refused: models BPE, Unigram, WordPiece and WordLevel with the normalizers,
 * pre-tokenizers, post-processors and decoders that docs/formats.md lists; anything else is
 * refused by name. Errors: BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT (the fault and its place);
 * BP_ERR_SYSTEM.
 */
bp_err bp_tokenizer_load(bp_tokenizer **out, const char *path);
/** The same from text in memory (a tokenizer.json kept in a corpus or a checkpoint); `name` stands
 * for it in messages. */
bp_err bp_tokenizer_parse(bp_tokenizer **out, const char *text, size_t bytes, const char *name);
/** GPT-2's pair of files. Errors: as bp_tokenizer_load. */
bp_err bp_tokenizer_load_gpt2(bp_tokenizer **out, const char *vocab_path, const char *merges_path);
/** RoBERTa's and BART's, with those of the special tokens <s> <pad> </s> <unk> <mask> that it has;
 * prefix_space: texts begin with a blank. Errors: as bp_tokenizer_load; <s> or </s> is missing. */
bp_err bp_tokenizer_load_roberta(bp_tokenizer **out, const char *vocab_path,
                                 const char *merges_path, bool prefix_space);
/** The first GPT's: words in lower case without accents, whose last piece ends in </w>. Errors: as
 * bp_tokenizer_load; <unk> is missing. */
bp_err bp_tokenizer_load_openai_gpt(bp_tokenizer **out, const char *vocab_path,
                                    const char *merges_path);
/** A BERT vocabulary (vocab.txt: one token per line, its id the line number): WordPiece with BERT's
 * normalizer and pre-tokenizer; `lowercase` as its model was trained. Errors: as bp_tokenizer_load;
 * one of [PAD] [UNK] [CLS] [SEP] [MASK] is missing. */
bp_err bp_tokenizer_load_bert(bp_tokenizer **out, const char *vocab_path, bool lowercase);
/** The same for lines in memory; `name` stands for the file in messages. */
bp_err bp_tokenizer_parse_bert(bp_tokenizer **out, const char *text, size_t bytes, bool lowercase,
                               const char *name);
/** Write tokenizer.json. Byte-level BPE with GPT-2's pattern, words and characters are written in
 * canonical form, others unchanged: load and save give the same bytes. Errors: those of
 * bp_file_write. */
bp_err bp_tokenizer_save(const bp_tokenizer *tokenizer, const char *path);
void bp_tokenizer_free(bp_tokenizer **tokenizer);

int64_t bp_tokenizer_size(const bp_tokenizer *tokenizer); /* vocab_size, special tokens counted */
int64_t bp_tokenizer_eod(const bp_tokenizer *tokenizer);  /* BP_ROLE_END */
int64_t bp_tokenizer_unk(const bp_tokenizer *tokenizer);  /* BP_ROLE_UNKNOWN */
/** Does every invalid byte of a text become the token of its byte? */
bool bp_tokenizer_keeps_bytes(const bp_tokenizer *tokenizer);
/** What its normalizer removes, so that the ids do not spell the text (bp_normalizer_loses). */
const char *bp_tokenizer_loses(const bp_tokenizer *tokenizer);
/** What names of tokens that end a word end with, such as "</w>"; NULL: blanks begin tokens. */
const char *bp_tokenizer_word_end(const bp_tokenizer *tokenizer);
/** "bpe", "word", "char", "unigram", "wordpiece". */
const char *bp_tokenizer_kind(const bp_tokenizer *tokenizer);

/** What special tokens are for. */
typedef enum bp_role {
    BP_ROLE_PAD,
    BP_ROLE_UNKNOWN,
    BP_ROLE_CLS,
    BP_ROLE_SEP,
    BP_ROLE_MASK,
    BP_ROLE_END,   /* follows a document */
    BP_ROLE_BOS,   /* the beginning of a text, as models of the tokenizer know it */
    BP_ROLE_FIRST, /* the token that the tokenizer itself puts before a text: bos, or none */
    BP_ROLES
} bp_role;
/** Id of the token of a role; -1 if none. It comes from the files beside tokenizer.json
 * (bp_tokenizer_take_folder), the model (unknown), the post-processor (cls, sep, bos, first) or, if
 * none of these has it, the names of special tokens (all but bos and first). */
int64_t bp_tokenizer_role(const bp_tokenizer *tokenizer, bp_role role);
/** "pad", "unk", "cls", "sep", "mask", "eod", "bos", "first". */
const char *bp_role_name(bp_role role);

/** id of a token by its name; -1 if none. */
int64_t bp_tokenizer_id(const bp_tokenizer *tokenizer, const char *name, size_t bytes);

#define BP_ENDS 16
/** Tokens that end generated text: the end of a document, and others that the files beside
 * tokenizer.json name. */
typedef struct bp_ends {
    int count;
    int64_t ids[BP_ENDS];
} bp_ends;
bool bp_ends_have(const bp_ends *ends, int64_t id);
/** Add an id that is not among them; one beyond BP_ENDS is left out. */
void bp_ends_add(bp_ends *ends, int64_t id);
const bp_ends *bp_tokenizer_ends(const bp_tokenizer *tokenizer);
/** The token that the post-processor's template puts after a text; -1 if none. */
int64_t bp_tokenizer_template_end(const bp_tokenizer *tokenizer);
/** May only `first` be put before texts, as `key` = auto does? Errors: BP_ERR_CONFIG the template
 * puts more tokens there. */
bp_err bp_tokenizer_check_first(const bp_tokenizer *tokenizer, int64_t first, const char *key);

/** Take the roles from a folder's files, if there are any: bos from tokenizer_config.json
 * ("bos_token", else that of special_tokens_map.json), then the post-processor's template, then
 * config.json and generation_config.json ("bos_token_id"); eod from tokenizer_config.json
 * ("eos_token"), config.json and generation_config.json ("eos_token_id", a number or a list); pad,
 * cls, sep and mask from tokenizer_config.json, if the tokenizer has none. "add_bos_token" says
 * whether bos is put before texts; else the template does. An id of config.json or
 * generation_config.json counts if it is a special token. Files that cannot be read as JSON, and
 * values of other types, are ignored (bp_tokenizer_unread). bp_tokenizer_load does it with the
 * file's own folder. */
void bp_tokenizer_take_folder(bp_tokenizer *tokenizer, const char *folder);
/** The same by a tokenizer_config.json only. */
void bp_tokenizer_take_config(bp_tokenizer *tokenizer, const json_t *config);
#define BP_DISAGREEMENTS 2
/** The disagreement of those files on bos (k 0) or eod (k 1), for a warning; NULL if they agree.
 * Borrowed. */
const char *bp_tokenizer_disagreement(const bp_tokenizer *tokenizer, int k);
/** What is ignored in that folder, for a warning: a file that is not a JSON object, a value that
 * names no token; NULL if there is none. Borrowed. */
const char *bp_tokenizer_unread(const bp_tokenizer *tokenizer);
/** Put them into a checkpoint's state as "roles", and the tokens that end a text as "end_ids" where
 * there are others than the end of a document (ends NULL: none is known). */
void bp_roles_put(json_t *state, const int64_t roles[BP_ROLES], const bp_ends *ends);
/** A role of a checkpoint's state; -1 if none. */
int64_t bp_roles_get(const json_t *state, bp_role role);
/** Add the ids below vocab_size that a JSON number, or list of numbers, has. */
void bp_ends_read(bp_ends *ends, const json_t *value, int64_t vocab_size);
/** Where documents may be cut for it (bp_documents_options.cut). */
bp_cut bp_tokenizer_cut(const bp_tokenizer *tokenizer);
/** The same where names of special tokens are those tokens. */
bp_cut bp_tokenizer_cut_specials(const bp_tokenizer *tokenizer);
/** Was its text made by bp_tokenizer_framed_text? */
bool bp_tokenizer_was_framed(const bp_tokenizer *tokenizer);
/** SHA-256 of the tokenizer's meaning, independent of its file's spelling: kept by corpora and
 * checkpoints. Borrowed. */
const char *bp_tokenizer_hash(const bp_tokenizer *tokenizer);
/** Are two hashes of one tokenizer? Files of older versions keep the hash of the text; if hashes
 * differ, their known texts are compared by meaning. */
bool bp_tokenizer_same_hash(const char *one, const char *other);
/** The text of the tokenizer.json that a file keeps, to *text (bp_free); NULL if none. */
typedef bp_err bp_tokenizer_source(const char *path, char **text, size_t *bytes);
/** Record that the file at `path` has a tokenizer with this hash. It is read only if hashes differ.
 */
void bp_tokenizer_hash_is_of(const char *hash, const char *path, bp_tokenizer_source *read);
/** The canonical tokenizer.json text. Free with bp_free(). */
char *bp_tokenizer_text(const bp_tokenizer *tokenizer);

/** [begin] A end, of two texts [begin] A end B end. */
typedef struct bp_text_frame {
    int64_t begin, end; /* ids of special tokens; begin -1: none */
    bool has_segments;  /* B and the end after it are segment 1; else all are segment 0 */
    int64_t middles;    /* ends between A and B; 0: one */
} bp_text_frame;
/** That text with the post-processor that frames texts this way for other programs. If the old one
 * differs, the text keeps it, and bp_tokenizer_load puts it back: of a text that this program wrote
 * tokenizer and hash stay the same. Errors: BP_ERR_FORMAT an id beyond the vocabulary;
 * BP_ERR_SYSTEM. Free with bp_free(). */
bp_err bp_tokenizer_framed_text(char **out, const bp_tokenizer *tokenizer,
                                const bp_text_frame *frame);

/** Working memory of one thread that encodes (a cache of words). The tokenizer is borrowed and must
 * outlive it. */
typedef struct bp_encoder bp_encoder;
bp_err bp_encoder_new(bp_encoder **out, const bp_tokenizer *tokenizer);
/** From now on, names of special tokens in the text are those tokens (prompts with [MASK]); without
 * this they are text. */
void bp_encoder_find_specials(bp_encoder *encoder, bool find);
void bp_encoder_free(bp_encoder **encoder);
/** Append the ids of a document's `bytes` of text (any bytes; as tiktoken's encode_ordinary:
 * special tokens are plain text, other added tokens are found). Errors: BP_ERR_SYSTEM;
 * BP_ERR_FORMAT a regular expression gives up; word and char kinds map what they lack to <unk>. */
bp_err bp_encode(bp_encoder *encoder, const char *text, size_t bytes, bp_ids *ids);
/** The same for a document given in pieces that were cut as bp_tokenizer_cut says; `first`: its
 * first piece. */
bp_err bp_encode_piece(bp_encoder *encoder, const char *text, size_t bytes, bool first,
                       bp_ids *ids);
/** Text of ids, appended to a new buffer with a zero byte after it; free with bp_free().
 *
 * bpe: the bytes of the tokens; word: the words with a space between; char: the characters; others:
 * by the decoder of tokenizer.json.
 * Errors: BP_ERR_FORMAT an id beyond the vocabulary; BP_ERR_SYSTEM.
 */
bp_err bp_decode(const bp_tokenizer *tokenizer, const uint32_t *ids, int64_t count, char **text,
                 size_t *bytes);

/** Append any bytes in readable form: one line of valid UTF-8, from which the bytes can be
 * recovered.
 *
 * Characters stay as they are, spaces too, except: \\ is a backslash; \n, \t, \r are newline, tab,
 * carriage return; \xNN is a byte of another control character, of a line separator (U+2028,
 * U+2029), or one that is not valid UTF-8.
 */
void bp_text_escape(bp_buffer *out, const char *text, size_t bytes);

/** Append text as valid UTF-8: each invalid byte becomes U+FFFD. */
void bp_text_repair(bp_buffer *out, const char *text, size_t bytes);

/** Append the text of one token in this form; bytes that are invalid UTF-8 within this token count
 * as invalid. A special token is its name. Errors: BP_ERR_FORMAT an id beyond the vocabulary;
 * BP_ERR_SYSTEM. */
bp_err bp_tokenizer_token_text(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *text);

/** The same for the first of `count` tokens, with the next ones whose bytes belong to a character
 * that it begins. *taken: how many they are, at least 1. Errors: as bp_tokenizer_token_text. */
bp_err bp_tokenizer_characters(const bp_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                               bp_buffer *text, int64_t *taken);

/** continues[id]: does the token continue the word before it? wordpiece: its name begins with ##;
 * others: it begins neither with White_Space nor with what stands for a space; a word, and a
 * special token, begins. Shapes: continues[bp_tokenizer_size]. Errors: BP_ERR_SYSTEM. */
bp_err bp_tokenizer_word_parts(const bp_tokenizer *tokenizer, bool *continues);

/** Append the bytes of one token. A special token's are its name. Errors: as
 * bp_tokenizer_token_text. */
bp_err bp_tokenizer_token_bytes(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *bytes);
/** The same for the token inside a text: U+2581 is a space and <0x0A> a byte, according to the
 * tokenizer's decoder. Errors: as bp_tokenizer_token_text; those of bp_regex_next. */
bp_err bp_tokenizer_spell(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *text);
